"""Row reductions (softmax, layer-norm) of [4096, 1024] in f32, scheduled with public primitives
only, versus numpy and versus a copy.

    python benchmarks/row_reductions.py [rounds]

Rounds of the implementations are interleaved, so that noise affects all of them alike; the best and
the median of each are printed. numpy runs on one thread, Ingot on one and on two. Both kernels read
one array and write one, so copy bandwidth bounds them: `of copy` is their bandwidth over that of
the best copy of an array far larger than the caches, by numpy or by a kernel, in the same run on as
many threads. (An array of the same size is partly in L3, and copied faster.)
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # read by numpy

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

import ingot
from ingot.script import alloc, block, exp, f32, grid, inf, init, rsqrt

ROWS, COLUMNS = 4096, 1024
MANY_ROWS = 32 * 1024  # 128 MB
ROUNDS = 60
# four vector registers of eight lanes: four independent instructions hide the latency of each step
# of a long formula
WIDE = 4 * 8
STEPS = COLUMNS // WIDE
EPSILON = 1e-5
LINE = 64  # bytes of a cache line


@ingot.kernel
def softmax(X: f32[ROWS, COLUMNS], Y: f32[ROWS, COLUMNS]):
    row_max = alloc(f32[ROWS])
    exps = alloc(f32[ROWS, COLUMNS])
    sums = alloc(f32[ROWS, WIDE])
    total = alloc(f32[ROWS])
    scale = alloc(f32[ROWS])
    for i, j in grid(ROWS, COLUMNS):
        with block("row_max", spatial=(i,), reduce=(j,)) as (vi, vj):
            with init():
                row_max[vi] = -inf
            row_max[vi] = max(row_max[vi], X[vi, vj])
    # partial sums per lane: each exponential is added while it is in a register
    for i, j, k in grid(ROWS, WIDE, STEPS):
        with block("sums", spatial=(i, j), reduce=(k,)) as (vi, vj, vk):
            with init():
                sums[vi, vj] = 0.0
            exps[vi, vk * WIDE + vj] = exp(X[vi, vk * WIDE + vj] - row_max[vi])
            sums[vi, vj] += exps[vi, vk * WIDE + vj]
    for i, j in grid(ROWS, WIDE):
        with block("total", spatial=(i,), reduce=(j,)) as (vi, vj):
            with init():
                total[vi] = 0.0
            total[vi] += sums[vi, vj]
    for i in grid(ROWS):
        with block("scale", spatial=(i,)) as (vi,):
            scale[vi] = 1.0 / total[vi]
    for i, j in grid(ROWS, COLUMNS):
        with block("Y", spatial=(i, j)) as (vi, vj):
            Y[vi, vj] = exps[vi, vj] * scale[vi]


@ingot.kernel
def layer_norm(X: f32[ROWS, COLUMNS], G: f32[COLUMNS], B: f32[COLUMNS], Y: f32[ROWS, COLUMNS]):
    total = alloc(f32[ROWS])
    mean = alloc(f32[ROWS])
    spread = alloc(f32[ROWS])
    scale = alloc(f32[ROWS])
    for i, j in grid(ROWS, COLUMNS):
        with block("total", spatial=(i,), reduce=(j,)) as (vi, vj):
            with init():
                total[vi] = 0.0
            total[vi] += X[vi, vj]
    for i in grid(ROWS):
        with block("mean", spatial=(i,)) as (vi,):
            mean[vi] = total[vi] * (1.0 / COLUMNS)
    for i, j in grid(ROWS, COLUMNS):
        with block("spread", spatial=(i,), reduce=(j,)) as (vi, vj):
            with init():
                spread[vi] = 0.0
            spread[vi] += (X[vi, vj] - mean[vi]) * (X[vi, vj] - mean[vi])
    for i in grid(ROWS):
        with block("scale", spatial=(i,)) as (vi,):
            scale[vi] = rsqrt(spread[vi] * (1.0 / COLUMNS) + EPSILON)
    for i, j in grid(ROWS, COLUMNS):
        with block("Y", spatial=(i, j)) as (vi, vj):
            Y[vi, vj] = (X[vi, vj] - mean[vi]) * scale[vi] * G[vj] + B[vj]


def copy_of(rows: int) -> ingot.KernelFunction:
    @ingot.kernel
    def copy(X: f32[rows, COLUMNS], Y: f32[rows, COLUMNS]):
        for i, j in grid(rows, COLUMNS):
            with block("Y", spatial=(i, j)) as (vi, vj):
                Y[vi, vj] = X[vi, vj]

    return copy.schedule(lambda sch: by_rows(sch, []))


# --- schedules ------------------------------------------------------------------------------------


def in_lanes(sch: ingot.Schedule, name: str, lanes: int = WIDE):
    """A reduction along the row → one partial reduction per lane, and a reduction of those."""
    return sch.rfactor(sch.split(sch.loops(sch.block(name))[-1], None, lanes)[-1], axis=1)


def by_rows(sch: ingot.Schedule, stages: list) -> None:
    """Compute all stages, in their order, inside the parallel loop over rows."""
    row, column = sch.loops(sch.block("Y"))
    for stage in reversed(stages):
        sch.compute_at(stage, row)
    sch.vectorize(sch.split(column, None, WIDE)[-1])
    sch.parallel(row)


def accumulate(sch: ingot.Schedule, partial, lane, step, whole: str) -> None:
    """Keep partial results in registers along the row; then combine the lanes in a tree."""
    sch.reorder(step, lane)
    sch.vectorize(lane)
    sch.set_scope(partial, "register")
    sch.vectorize(sch.loops(sch.block(whole))[-1])


def prefetch(sch: ingot.Schedule, step) -> None:
    """Prefetch the next row of X, and this row of Y. A row is a page, and hardware prefetchers stop
    at page boundaries."""
    row = sch.loops(sch.block("Y"))[0]
    sch.prefetch(step, "X", row)
    sch.prefetch(step, "Y", row, ahead=0)


def schedule_softmax(sch: ingot.Schedule) -> None:
    partial_max, sums = in_lanes(sch, "row_max", 2 * WIDE), sch.block("sums")
    by_rows(sch, [partial_max, sch.block("row_max"), sums, sch.block("total"), sch.block("scale")])
    lane, _, step = sch.loops(partial_max)[-3:]
    accumulate(sch, "row_max_rf", lane, step, "row_max")
    lane, step = sch.loops(sums)[-2:]
    accumulate(sch, "sums", lane, step, "total")
    prefetch(sch, step)


def schedule_layer_norm(sch: ingot.Schedule) -> None:
    totals, spreads = in_lanes(sch, "total"), in_lanes(sch, "spread")
    mean, scale = sch.block("mean"), sch.block("scale")
    by_rows(sch, [totals, sch.block("total"), mean, spreads, sch.block("spread"), scale])
    for name, stage in (("total", totals), ("spread", spreads)):
        lane, _, step = sch.loops(stage)[-3:]
        accumulate(sch, f"{name}_rf", lane, step, name)
    prefetch(sch, step)


# --- numpy ----------------------------------------------------------------------------------------


def softmax_by_numpy(x: np.ndarray, out: np.ndarray) -> None:
    np.subtract(x, x.max(1, keepdims=True), out=out)
    np.exp(out, out=out)
    np.divide(out, out.sum(1, keepdims=True), out=out)


def layer_norm_by_numpy(x: np.ndarray, g: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    np.subtract(x, x.mean(1, keepdims=True), out=out)
    spread = np.einsum("ij,ij->i", out, out)[:, None] / COLUMNS
    np.multiply(out, 1 / np.sqrt(spread + EPSILON), out=out)
    np.multiply(out, g, out=out)
    np.add(out, b, out=out)


# --- timing ---------------------------------------------------------------------------------------


def aligned(*shape: int) -> np.ndarray:
    """An array aligned to a cache line, like an arena; numpy's own start 16 bytes after one."""
    size = 4 * int(np.prod(shape))
    memory = np.empty(size + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    return memory[start : start + size].view(np.float32).reshape(shape)


def implementations() -> dict[str, Callable[[], object]]:
    rng = np.random.default_rng(0)
    x, y, z = (aligned(ROWS, COLUMNS) for _ in range(3))
    x[:] = rng.standard_normal(x.shape)
    g, b = (rng.standard_normal(COLUMNS, np.float32) for _ in range(2))
    fast = softmax.schedule(schedule_softmax)
    norm = layer_norm.schedule(schedule_layer_norm)
    large, other = (aligned(MANY_ROWS, COLUMNS) for _ in range(2))
    large[:] = other[:] = 1
    plain, much = copy_of(ROWS), copy_of(MANY_ROWS)
    runs: dict[str, Callable[[], object]] = {
        "numpy large copy": lambda: np.copyto(other, large),
        "numpy copy": lambda: np.copyto(y, x),
        "numpy softmax": lambda: softmax_by_numpy(x, y),
        "numpy layer-norm": lambda: layer_norm_by_numpy(x, g, b, y),
    }
    for t in (1, 2):
        runs[f"large copy, {t}"] = lambda t=t: much(large, other, threads=t)
        runs[f"copy, {t}"] = lambda t=t: plain(x, y, threads=t)
        runs[f"softmax, {t}"] = lambda t=t: fast(x, y, threads=t)
        runs[f"layer-norm, {t}"] = lambda t=t: norm(x, g, b, y, threads=t)
    fast(x, y)
    softmax_by_numpy(x, z)
    np.testing.assert_allclose(y, z, rtol=1e-5, atol=1e-7)
    norm(x, g, b, y)
    layer_norm_by_numpy(x, g, b, z)
    np.testing.assert_allclose(y, z, rtol=1e-4, atol=1e-5)
    return runs


def time_rounds(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """The seconds of every round."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            found[name].append(time.perf_counter() - start)
    return found


def moved_gb(name: str) -> float:
    return 2 * 4 * COLUMNS * (MANY_ROWS if "large" in name else ROWS) / 1e9


def line(name: str, times: list[float], numpy: list[float] | None, copy_rate: float) -> str:
    best, median = min(times), statistics.median(times)
    rate = moved_gb(name) / best
    ratio = "" if numpy is None else f"{min(numpy) / best:.2f}"
    middle = "" if numpy is None else f"{statistics.median(numpy) / median:.2f}"
    cells = [
        name, f"{1e3 * best:.2f}", f"{1e3 * median:.2f}", f"{rate:.1f}", ratio, middle,
        f"{100 * rate / copy_rate:.0f} %",
    ]  # fmt: skip
    return "".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS))


HEADS = ("", "best ms", "median", "GB/s", "vs numpy", "(median)", "of copy")
WIDTHS = (20, 10, 9, 8, 10, 10, 10)


def main(rounds: int = ROUNDS) -> None:
    found = time_rounds(implementations(), rounds)
    print(f"rows of [{ROWS}, {COLUMNS}], f32; numpy on one thread, Ingot on 1 and on 2")
    print("".join(f"{head:>{width}}" for head, width in zip(HEADS, WIDTHS)))
    rate = {name: moved_gb(name) / min(times) for name, times in found.items()}
    copy_rates = {1: max(rate["numpy large copy"], rate["large copy, 1"]), 2: rate["large copy, 2"]}
    for name, times in found.items():
        what, _, threads = name.partition(", ")
        print(line(name, times, found.get(f"numpy {what}"), copy_rates[int(threads or 1)]))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

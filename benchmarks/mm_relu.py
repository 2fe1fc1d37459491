"""C = relu(A·B) in f32, a GEMM with a fused epilogue, scheduled with public primitives only, versus
numpy (OpenBLAS).

    python benchmarks/mm_relu.py [rounds]

Rounds of the implementations are interleaved, so that noise affects all of them alike; the best of
each is taken. numpy runs on one thread, Ingot on one and on two. "cpu time" is the same ratio of
the calling thread's CPU time, which other processes disturb least.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when numpy is loaded

import sys
import time
from collections.abc import Callable

import numpy as np

import ingot
from ingot.script import alloc, block, f32, grid, init

SHAPES = ((1024, 1024, 1024), (1000, 1000, 1000), (777, 513, 1025))  # m, n, k
ROUNDS = 40
CACHE_BYTES = 384 * 1024  # of a packed block of A: most of L2
MR, NR = 6, 16  # register tile: 12 vector accumulators of 8 lanes, 4 registers for operands


def mm_relu(m: int, n: int, k: int) -> ingot.KernelFunction:
    @ingot.kernel
    def mm_relu(A: f32[m, k], B: f32[k, n], C: f32[m, n]):
        Y = alloc(f32[m, n])
        for i, j, p in grid(m, n, k):
            with block("Y", spatial=(i, j), reduce=(p,)) as (vi, vj, vp):
                with init():
                    Y[vi, vj] = 0.0
                Y[vi, vj] += A[vi, vp] * B[vp, vj]
        for i, j in grid(m, n):
            with block("C", spatial=(i, j)) as (vi, vj):
                C[vi, vj] = max(Y[vi, vj], 0.0)

    return mm_relu


def tiles_per_block(count: int, depth: int) -> int:
    """Row tiles per cache block: as many as fit L2, in an even number of blocks for two threads."""
    most = max(1, CACHE_BYTES // (4 * MR * depth))
    blocks = 2 * -(-count // (2 * most))
    return -(-count // blocks)


def packed_tiles(sch: ingot.Schedule, m: int, n: int, k: int) -> None:
    """6 x 16 register tiles over all of k; A and B are packed in the order that tiles read them."""
    Y, C = sch.block("Y"), sch.block("C")
    A, B = sch.cache_read(Y, "A", "thread"), sch.cache_read(Y, "B")
    sch.pad(Y, MR, NR, 1)
    sch.transform_layout(A, lambda i, k: (i // MR, k, i % MR))
    sch.transform_layout(B, lambda k, j: (j // NR, k, j % NR))

    i, j, p = sch.loops(Y)
    tiles, row = sch.split(i, None, MR)
    blocks, tile = sch.split(tiles, None, tiles_per_block(-(-m // MR), k))
    panel, half, lane = sch.split(j, None, 2, NR // 2)
    sch.reorder(blocks, panel, tile, p, row, half, lane)
    sch.compute_at(A, blocks)
    sch.reverse_compute_at(C, tile)
    sch.set_scope("Y", "register")

    c_row, c_column = sch.loops(C)[-2:]
    c_half, c_lane = sch.split(c_column, 2, NR // 2)
    b_panel, b_p, b_column = sch.loops(B)
    b_half, b_lane = sch.split(b_column, 2, NR // 2)
    strip, b_p = sch.split(b_p, None, 8)
    sch.reorder(strip, b_panel, b_p, b_half, b_lane)
    for loop in (row, half, c_row, c_half, b_half, sch.loops(A)[-1]):
        sch.unroll(loop)
    for loop in (lane, c_lane, b_lane):
        sch.vectorize(loop)
    for loop in (blocks, strip):
        sch.parallel(loop)


def times(runs: dict[str, Callable], rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """The best wall time and CPU time of each."""
    best, cpu = dict.fromkeys(runs, float("inf")), dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            start, begun = time.perf_counter(), time.thread_time()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
            cpu[name] = min(cpu[name], time.thread_time() - begun)
    return best, cpu


def line(m: int, n: int, k: int, rounds: int) -> str:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape, np.float32) for shape in ((m, k), (k, n)))
    ours, theirs = np.empty((m, n), np.float32), np.empty((m, n), np.float32)
    function = mm_relu(m, n, k).schedule(lambda sch: packed_tiles(sch, m, n, k))

    def by_numpy() -> None:
        np.matmul(a, b, out=theirs)
        np.maximum(theirs, 0, out=theirs)

    runs: dict[str, Callable] = {
        "numpy": by_numpy,
        "matmul": lambda: np.matmul(a, b, out=theirs),
        "one": lambda: function(a, b, ours, threads=1),
        "two": lambda: function(a, b, ours, threads=2),
    }
    for name in ("matmul", "two", "one", "numpy"):  # warm-up
        runs[name]()
    np.testing.assert_allclose(ours, theirs, atol=1e-3)
    best, cpu = times(runs, rounds)
    rate = {name: 2 * m * n * k / 1e9 / seconds for name, seconds in best.items()}
    cells = [
        f"{m} x {n} x {k}", f"{rate['numpy']:.1f}", f"{rate['matmul']:.1f}", f"{rate['one']:.1f}",
        f"{rate['two']:.1f}", f"{best['numpy'] / best['one']:.2f}",
        f"{best['matmul'] / best['one']:.2f}", f"{cpu['matmul'] / cpu['one']:.2f}",
        f"{best['one'] / best['two']:.2f}",
    ]  # fmt: skip
    return "".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS))


HEADS = ("m x n x k", "numpy", "its matmul", "ingot, 1", "ingot, 2", "vs numpy", "vs matmul",
         "cpu time", "2 vs 1")  # fmt: skip
WIDTHS = (20, 8, 12, 10, 10, 11, 12, 10, 8)


def main(rounds: int = ROUNDS) -> None:
    print("relu(A·B), f32: GFLOP/s and speedups; numpy, and its matmul alone, on one thread")
    print("".join(f"{head:>{width}}" for head, width in zip(HEADS, WIDTHS)))
    for shape in SHAPES:
        print(line(*shape, rounds), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

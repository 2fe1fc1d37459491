"""Softmax of each row: four stages, fused in the loop over rows so that the row stays in cache.

python examples/kernels/row_softmax.py
"""

from __future__ import annotations

from timing import compare_with_numpy  # before numpy: it sets numpy's thread count

import numpy as np

import ingot
from ingot.script import alloc, block, exp, f32, grid, inf, init, size

ROWS, COLUMNS, LANES = 4096, 1024, 8
n = size  # what the name in the kernel's annotations is, for type checkers


@ingot.kernel
def softmax(n: size, X: f32[n, COLUMNS], Y: f32[n, COLUMNS]):
    row_max = alloc(f32[n])
    exps = alloc(f32[n, COLUMNS])
    row_sum = alloc(f32[n])
    for i, j in grid(n, COLUMNS):
        with block("row_max", spatial=(i,), reduce=(j,)) as (vi, vj):
            with init():
                row_max[vi] = -inf
            row_max[vi] = max(row_max[vi], X[vi, vj])
    for i, j in grid(n, COLUMNS):
        with block("exps", spatial=(i, j)) as (vi, vj):
            exps[vi, vj] = exp(X[vi, vj] - row_max[vi])
    for i, j in grid(n, COLUMNS):
        with block("row_sum", spatial=(i,), reduce=(j,)) as (vi, vj):
            with init():
                row_sum[vi] = 0.0
            row_sum[vi] += exps[vi, vj]
    for i, j in grid(n, COLUMNS):
        with block("Y", spatial=(i, j)) as (vi, vj):
            Y[vi, vj] = exps[vi, vj] / row_sum[vi]


def in_lanes(sch: ingot.Schedule, name: str):
    """A reduction along the row → eight partial reductions, one per lane, and their combination."""
    return sch.rfactor(sch.split(sch.loops(sch.block(name))[-1], None, LANES)[-1], axis=1)


def by_rows(sch: ingot.Schedule) -> None:
    row, _ = sch.loops(sch.block("Y"))
    partial_max, partial_sum = in_lanes(sch, "row_max"), in_lanes(sch, "row_sum")
    row_max, exps, row_sum = sch.block("row_max"), sch.block("exps"), sch.block("row_sum")
    for each in (row_sum, partial_sum, exps, row_max, partial_max):  # consumers first
        sch.compute_at(each, row)
    for each in (partial_max, partial_sum):
        *_, lane, _, j = sch.loops(each)
        sch.reorder(j, lane)
        sch.vectorize(lane)
    for each in (exps, sch.block("Y")):
        sch.vectorize(sch.split(sch.loops(each)[-1], None, LANES)[-1])
    sch.parallel(row)


def by_numpy(x: np.ndarray, out: np.ndarray) -> None:
    np.subtract(x, x.max(1, keepdims=True), out=out)
    np.exp(out, out=out)
    np.divide(out, out.sum(1, keepdims=True), out=out)


def main() -> None:
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), np.float32)
    y, want = np.empty_like(x), np.empty_like(x)
    fast = softmax.schedule(by_rows)
    fast(x, y)
    by_numpy(x, want)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-7)
    run = lambda: fast(x, y, threads=1)  # noqa: E731
    compare_with_numpy("softmax", run, lambda: by_numpy(x, want), 2 * x.nbytes, "GB/s")


if __name__ == "__main__":
    main()

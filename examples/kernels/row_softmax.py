"""Softmax of each row: four formulas, computed row by row while the row is in cache.

python examples/kernels/row_softmax.py
"""

from __future__ import annotations

from beside import beside  # first: it tells numpy to use one thread

import numpy as np

import ingot
from ingot.script import *

ROWS, COLUMNS, LANES = 4096, 1024, 8


@ingot.kernel
def softmax(n: size, X: f32[n, COLUMNS], Y: f32[n, COLUMNS]):
    top = alloc(f32[n])
    part = alloc(f32[n, COLUMNS])
    total = alloc(f32[n])
    for i, j in grid(n, COLUMNS):
        with block("top", spatial=(i,), reduce=(j,)) as (vi, vj):
            with init():
                top[vi] = -inf
            top[vi] = max(top[vi], X[vi, vj])
    for i, j in grid(n, COLUMNS):
        with block("part", spatial=(i, j)) as (vi, vj):
            part[vi, vj] = exp(X[vi, vj] - top[vi])
    for i, j in grid(n, COLUMNS):
        with block("total", spatial=(i,), reduce=(j,)) as (vi, vj):
            with init():
                total[vi] = 0.0
            total[vi] += part[vi, vj]
    for i, j in grid(n, COLUMNS):
        with block("Y", spatial=(i, j)) as (vi, vj):
            Y[vi, vj] = part[vi, vj] / total[vi]


def in_lanes(sch: ingot.Schedule, name: str):
    """A reduction along the row as eight partial ones side by side, combined at the end."""
    return sch.rfactor(sch.split(sch.loops(sch.block(name))[-1], None, LANES)[-1], axis=1)


def by_rows(sch: ingot.Schedule) -> None:
    row, _ = sch.loops(sch.block("Y"))
    tops, totals = in_lanes(sch, "top"), in_lanes(sch, "total")
    top, part, total = sch.block("top"), sch.block("part"), sch.block("total")
    for block in (total, totals, part, top, tops):  # consumers first: each stage in the row's loop
        sch.compute_at(block, row)
    for block in (tops, totals):
        *_, lane, _, j = sch.loops(block)
        sch.reorder(j, lane)
        sch.vectorize(lane)
    for block in (part, sch.block("Y")):
        sch.vectorize(sch.split(sch.loops(block)[-1], None, LANES)[-1])
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
    beside("softmax", run, lambda: by_numpy(x, want), 2 * x.nbytes, "GB/s")


if __name__ == "__main__":
    main()

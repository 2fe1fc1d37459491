"""A 3 × 3 mean as two passes, along rows, then along columns, tiled in bands that stay in cache.

python examples/kernels/stencil.py
"""

from __future__ import annotations

from timing import compare_with_numpy  # before numpy: it sets numpy's thread count

import numpy as np

import ingot
from ingot.script import alloc, block, f32, grid

N, BAND, LANES = 2048, 32, 8
THIRD = 1 / 3


def mean(a, b, c):
    return (a + b + c) * THIRD


@ingot.kernel
def blur(X: f32[N + 2, N + 2], Y: f32[N, N]):
    across = alloc(f32[N + 2, N])
    for i, j in grid(N + 2, N):
        with block("across", spatial=(i, j)) as (vi, vj):
            across[vi, vj] = mean(X[vi, vj], X[vi, vj + 1], X[vi, vj + 2])
    for i, j in grid(N, N):
        with block("Y", spatial=(i, j)) as (vi, vj):
            Y[vi, vj] = mean(across[vi, vj], across[vi + 1, vj], across[vi + 2, vj])


def in_bands(sch: ingot.Schedule) -> None:
    band, *_ = sch.split(sch.loops(sch.block("Y"))[0], None, BAND)
    sch.compute_at(sch.block("across"), band)  # the rows of the band, and two of halo
    for name in ("across", "Y"):
        _, lane = sch.split(sch.loops(sch.block(name))[-1], None, LANES)
        sch.vectorize(lane)
    sch.parallel(band)


def by_numpy(x: np.ndarray) -> np.ndarray:
    across = (x[:, :-2] + x[:, 1:-1] + x[:, 2:]) * np.float32(THIRD)
    return (across[:-2] + across[1:-1] + across[2:]) * np.float32(THIRD)


def main() -> None:
    x = np.random.default_rng(0).standard_normal((N + 2, N + 2), np.float32)
    y = np.empty((N, N), np.float32)
    fast = blur.schedule(in_bands)
    fast(x, y)
    np.testing.assert_allclose(y, by_numpy(x), rtol=1e-5, atol=1e-5)
    moved = x.nbytes + y.nbytes
    compare_with_numpy("blur", lambda: fast(x, y, threads=1), lambda: by_numpy(x), moved, "GB/s")


if __name__ == "__main__":
    main()

"""A 5 × 5 convolution with bias: register tiles of four channels by sixteen pixels.

python examples/kernels/conv5x5.py
"""

from __future__ import annotations

from timing import compare_with_numpy  # before numpy: it sets numpy's thread count

import numpy as np

import ingot
from ingot.script import alloc, block, f32, grid, init

C_IN, C_OUT, SIDE, K = 16, 32, 64, 5
CHANNELS, VECTORS, LANES = 4, 2, 8


@ingot.kernel
def conv(
    X: f32[C_IN, SIDE + K - 1, SIDE + K - 1],
    W: f32[C_OUT, C_IN, K, K],
    bias: f32[C_OUT],
    Y: f32[C_OUT, SIDE, SIDE],
):
    acc = alloc(f32[C_OUT, SIDE, SIDE])
    for o, y, x, c, dy, dx in grid(C_OUT, SIDE, SIDE, C_IN, K, K):
        with block("acc", spatial=(o, y, x), reduce=(c, dy, dx)) as (vo, vy, vx, vc, wy, wx):
            with init():
                acc[vo, vy, vx] = 0.0
            acc[vo, vy, vx] += X[vc, vy + wy, vx + wx] * W[vo, vc, wy, wx]
    for o, y, x in grid(C_OUT, SIDE, SIDE):
        with block("Y", spatial=(o, y, x)) as (vo, vy, vx):
            Y[vo, vy, vx] = acc[vo, vy, vx] + bias[vo]


def tiled(sch: ingot.Schedule) -> None:
    acc, out = sch.block("acc"), sch.block("Y")
    o, y, x, c, dy, dx = sch.loops(acc)
    o_tile, channel = sch.split(o, None, CHANNELS)
    x_tile, vector, lane = sch.split(x, None, VECTORS, LANES)
    sch.reorder(o_tile, y, x_tile, c, dy, dx, channel, vector, lane)
    sch.reverse_compute_at(out, x_tile)
    sch.split(sch.loops(out)[-1], None, LANES)
    zero = sch.decompose_reduction(acc, c)
    for each in (zero, acc, out):
        *_, row, vectors, lanes = sch.loops(each)
        sch.vectorize(lanes)
        sch.unroll(vectors)
        sch.unroll(row)
    sch.unroll(dx)
    sch.parallel(o_tile)


def by_numpy(x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x, (K, K), (1, 2))
    return np.tensordot(w, windows, ((1, 2, 3), (0, 3, 4))) + bias[:, None, None]


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((C_IN, SIDE + K - 1, SIDE + K - 1), np.float32)
    w = rng.standard_normal((C_OUT, C_IN, K, K), np.float32)
    bias = rng.standard_normal(C_OUT, np.float32)
    y = np.empty((C_OUT, SIDE, SIDE), np.float32)
    fast = conv.schedule(tiled)
    fast(x, w, bias, y)
    np.testing.assert_allclose(y, by_numpy(x, w, bias), rtol=1e-3, atol=1e-3)
    work = 2 * y.size * C_IN * K * K
    run = lambda: fast(x, w, bias, y, threads=1)  # noqa: E731
    compare_with_numpy("conv5x5", run, lambda: by_numpy(x, w, bias), work, "GFLOP/s")


if __name__ == "__main__":
    main()

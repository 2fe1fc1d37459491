"""relu(A @ B): a GEMM with register tiles over packed panels of B, and the relu fused as epilogue.

python examples/kernels/mm_relu.py
"""

from __future__ import annotations

from timing import compare_with_numpy  # before numpy: it sets numpy's thread count

import numpy as np

import ingot
from ingot.script import alloc, block, f32, grid, init

N = 1024
ROWS, VECTORS, LANES = 6, 2, 8  # register tile: 6 × 16, twelve vector accumulators of eight lanes
COLUMNS = VECTORS * LANES


@ingot.kernel
def mm_relu(A: f32[N, N], B: f32[N, N], C: f32[N, N]):
    Y = alloc(f32[N, N])
    for i, j, k in grid(N, N, N):
        with block("Y", spatial=(i, j), reduce=(k,)) as (vi, vj, vk):
            with init():
                Y[vi, vj] = 0.0
            Y[vi, vj] += A[vi, vk] * B[vk, vj]
    for i, j in grid(N, N):
        with block("C", spatial=(i, j)) as (vi, vj):
            C[vi, vj] = max(Y[vi, vj], 0.0)


def tiled(sch: ingot.Schedule) -> None:
    gemm, relu = sch.block("Y"), sch.block("C")
    panel = sch.cache_read(gemm, "B", layout=lambda k, j: (j // COLUMNS, k, j % COLUMNS))
    i, j, k = sch.loops(gemm)
    i_tile, row = sch.split(i, None, ROWS)
    j_tile, vector, lane = sch.split(j, None, VECTORS, LANES)
    sch.reorder(j_tile, i_tile, k, row, vector, lane)
    sch.reverse_compute_at(relu, i_tile)  # fused epilogue: the tile is still in registers
    sch.compute_at(panel, j_tile)  # pack one panel of B, use it for all rows of A
    for each in (relu, panel):
        vector_2, lane_2 = sch.split(sch.loops(each)[-1], None, LANES)
        sch.vectorize(lane_2)
        sch.unroll(vector_2)
    sch.unroll(sch.loops(relu)[-3])
    sch.vectorize(lane)
    sch.unroll(vector)
    sch.unroll(row)
    sch.parallel(j_tile)


def main() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, N, N), np.float32)
    c = np.empty((N, N), np.float32)
    fast = mm_relu.schedule(tiled)
    fast(a, b, c)
    np.testing.assert_allclose(c, np.maximum(a @ b, 0), rtol=1e-3, atol=1e-3)
    print(fast)
    compare_with_numpy(
        "mm_relu",
        lambda: fast(a, b, c, threads=1),
        lambda: np.maximum(np.matmul(a, b, out=c), 0, out=c),
        2 * N**3,
        "GFLOP/s",
    )


if __name__ == "__main__":
    main()

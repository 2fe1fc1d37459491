"""Decide: small-M GEMM, GEMV by split-K, and column sums: blocks of columns or chunks of K.

In: a Contraction and the target. Out: plans, the preferred one first. B is row-major, not packed,
and read once; a GEMV is fastest as one stream from end to end: threads then split K, not N.
"""

from __future__ import annotations

from ingot.cost.gemm import MIN_ROWS_TO_PACK
from ingot.cost.plan import Blocking, ContractionPlan
from ingot.cost.shape import PARALLEL_WORK, Contraction, product
from ingot.cost.tile import Tile
from ingot.support import options
from ingot.target import Target

K_STEP = 4  # rows of B per step; measured
GEMV_K_STEP = 8  # the same with M = 1, where each step loads and stores C; measured
VECTORS = 2  # vectors of columns per tile; heuristic
L1_FRACTION = 0.5  # of the L1 cache, for the block of C; heuristic
MIN_K_PER_THREAD = 64  # rows of B per thread in split-K; heuristic
MIN_COLUMNS = 64  # a narrower B is one panel already; heuristic
MAX_BLOCK = 4096  # columns of a block; heuristic


def decide_split_k(c: Contraction, target: Target) -> list[ContractionPlan]:
    """A GEMV, its K split between threads."""
    return _split_k("split_k", c, target) if _is_small_m(c) and c.assumed_rows == 1 else []


def decide_small_m_gemm(c: Contraction, target: Target) -> list[ContractionPlan]:
    """Blocks of columns, shared by the threads."""
    if not _is_small_m(c) or c.columns is None:
        return []
    width = _block_columns(c, target, c.assumed_rows, c.columns)
    step = GEMV_K_STEP if c.assumed_rows == 1 else K_STEP
    return [_plan("small_m_gemm", c, target, Blocking("columns", (width,)), step)]


def _is_small_m(c: Contraction) -> bool:
    if (
        not options.current().has("small_m_gemm")
        or not c.is_gemm
        or c.assumed_rows >= MIN_ROWS_TO_PACK
    ):
        return False
    return c.columns is not None and c.columns >= MIN_COLUMNS and len(c.k) == 1


def decide_column_sum(c: Contraction, target: Target) -> list[ContractionPlan]:
    """One array reduced to one row, as in global pooling: threads split the rows."""
    if not options.current().has("small_m_gemm") or not c.is_column_sum:
        return []
    return _split_k("column_sum", c, target)


def _plan(
    algorithm: str, c: Contraction, target: Target, blocking: Blocking, step: int
) -> ContractionPlan:
    tile = Tile(1, VECTORS, target.lanes(c.dtype))
    return ContractionPlan(
        algorithm, c.rows, c.lanes, c.k_order, tile, blocking=blocking, k_unroll=step, tail="pad"
    )


def _block_columns(c: Contraction, target: Target, rows: int, columns: int) -> int:
    """Columns of a block: as many as fit in the L1 budget, a multiple of the cores in blocks, and
    blocks of equal size where possible."""
    tile = VECTORS * target.lanes(c.dtype)
    tiles = -(-columns // tile)
    row_bytes = rows * c.dtype.storage_bytes
    most = int(target.caches[0] * L1_FRACTION) // row_bytes // tile
    most = max(1, min(most, MAX_BLOCK // tile))
    cores = min(target.cores, tiles)
    count = -(-tiles // most)
    count += -count % cores
    fits = [n for n in range(count, 2 * count, cores) if tiles % n == 0]
    return tile * -(-tiles // (fits[0] if fits else count))


def _split_k(algorithm: str, c: Contraction, target: Target) -> list[ContractionPlan]:
    """Iterations of the first reduce axis per core; none where K is too short to split, or N so
    long that blocks of columns are long streams too."""
    first, *others = [c.extents[axis] for axis in c.k]
    depth = product([first, *others])
    if first is None or c.columns is None or depth is None or target.cores == 1:
        return []
    if depth < MIN_K_PER_THREAD * target.cores or depth * c.columns < 2 * PARALLEL_WORK:
        return []
    chunk = -(-first // target.cores)
    chunk += 0 if others else -chunk % GEMV_K_STEP
    if c.columns > MAX_BLOCK or first <= chunk:
        return []
    return [_plan(algorithm, c, target, Blocking("k_chunks", (chunk,)), GEMV_K_STEP)]

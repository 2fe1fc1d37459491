"""Rule: small-M GEMM and GEMV, where the row-major operand B (K × N) is not worth packing.

    for blocks of columns (parallel):
        zero the block of C
        for k in steps of 4:
            for columns in vectors: for rows: for k of the step (unrolled): for vectors, lanes
        the epilogue, on the block

A register tile would read one narrow column panel of B: each of its rows is on another page, and
the hardware prefetcher does not follow. With few rows packing does not pay either. So B is read in
place and once, a few of its rows at a time, while the block of C stays in the L1 cache. For a GEMV
the fastest access is one stream from end to end: threads then split K (split-K), not N. In: a GEMM
whose B is contiguous along the lanes. Out: the loop to parallelise, or None where the rule does not
apply.
"""

from __future__ import annotations

import math

from ingot.arith import expr as arith
from ingot.loops.ir import Axis
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.block_info import BlockInfo, block_info_of, loop_of, own_loops
from ingot.schedule.rules.elementwise import PARALLEL_WORK, vectorize_loop
from ingot.schedule.schedule import Schedule
from ingot.target import Target

K_STEP = 4  # rows of B per step; measured, docs/performance.md ("Few rows")
GEMV_K_STEP = 8  # the same with M = 1, where each step loads and stores C; measured
VECTORS = 2  # vectors of columns per tile; heuristic
L1_FRACTION = 0.5  # of the L1 cache, for the block of C; heuristic
MIN_K_PER_THREAD = 64  # rows of B per thread in split-K; heuristic
MIN_COLUMNS = 64  # a narrower B is one panel already; heuristic
MAX_BLOCK = 4096  # columns of a block; heuristic


def schedule_small_m_gemm(
    sch: Schedule, target: Target, info: BlockInfo, rows: int, consumer: BlockRef | None
) -> LoopRef | None:
    """`info` has lanes along its last axis; `rows` is M, the rows that use a loaded vector."""
    columns = arith.as_int(info.spatial[-1].extent)
    if columns is None or columns < MIN_COLUMNS or len(info.reduced) != 1:
        return None
    k_chunk = _k_chunk(target, info) if rows == 1 else None
    if k_chunk is not None:
        with sch.attempt():
            return _split_k(sch, target, info, k_chunk, consumer)
    with sch.attempt():
        width = _block_columns(target, info, rows, columns)
        step = GEMV_K_STEP if rows == 1 else K_STEP
        return _column_blocks(sch, target, info, (width, step), consumer)
    return None


def split_column_reduction(
    sch: Schedule, target: Target, info: BlockInfo, consumer: BlockRef | None
) -> LoopRef | None:
    """A reduction along the columns of one array, as in global pooling: threads split the rows.
    `info` has lanes along its last axis; its other spatial axes have extent 1."""
    k_chunk = _k_chunk(target, info)
    if k_chunk is not None:
        with sch.attempt():
            return _split_k(sch, target, info, k_chunk, consumer)
    return None


def _block_columns(target: Target, info: BlockInfo, rows: int, columns: int) -> int:
    """Columns of a block: as many as fit in the L1 budget, a multiple of the cores in blocks, and
    blocks of equal size where possible."""
    tile = VECTORS * target.lanes(info.dtype)
    tiles = -(-columns // tile)
    row_bytes = rows * info.dtype.storage_bytes
    most = int(target.caches[0] * L1_FRACTION) // row_bytes // tile
    most = max(1, min(most, MAX_BLOCK // tile))
    cores = min(target.cores, tiles)
    count = -(-tiles // most)
    count += -count % cores
    fits = [n for n in range(count, 2 * count, cores) if tiles % n == 0]
    return tile * -(-tiles // (fits[0] if fits else count))


def _k_chunk(target: Target, info: BlockInfo) -> int | None:
    """Iterations of the first reduce axis per core in split-K; None where K is too short to split,
    or N so long that blocks of columns are long streams too."""
    first, *others = [arith.as_int(a.extent) for a in info.reduced]
    columns = arith.as_int(info.spatial[-1].extent)
    if first is None or columns is None or None in others or target.cores == 1:
        return None
    depth = first * math.prod(n for n in others if n is not None)
    if depth < MIN_K_PER_THREAD * target.cores or depth * columns < 2 * PARALLEL_WORK:
        return None
    k_chunk = -(-first // target.cores)
    k_chunk += 0 if others else -k_chunk % GEMV_K_STEP
    return k_chunk if columns <= MAX_BLOCK and first > k_chunk else None


def _column_blocks(
    sch: Schedule,
    target: Target,
    info: BlockInfo,
    sizes: tuple[int, int],
    consumer: BlockRef | None,
) -> LoopRef:
    """`sizes`: columns of a block, rows of B per step."""
    width, step = sizes
    _pad_columns(sch, info, width)
    lane_loop, k_loop = (_loop(sch, info, a) for a in (info.spatial[-1], info.reduced[0]))
    others = [x for x in own_loops(sch, info.ref) if x not in (lane_loop, k_loop)]
    batch, rows = others[:-1], others[-1:]  # a GEMV has no row loop
    block, inside = sch.split(lane_loop, None, width)
    parallel_loop, init = _accumulate(sch, target, info, [*batch, block], rows, inside, step)
    if consumer is not None:
        sch.reverse_compute_at(consumer, parallel_loop)
    for each in (init, consumer):
        if each is not None:
            vectorize_loop(sch, target, block_info_of(sch, each), own_loops(sch, each)[-1])
    return parallel_loop


def _split_k(
    sch: Schedule, target: Target, info: BlockInfo, k_chunk: int, consumer: BlockRef | None
) -> LoopRef:
    """split-K: one partial result per chunk of K, then their sum, with the consumer."""
    _pad_columns(sch, info, VECTORS * target.lanes(info.dtype))
    chunks, _ = sch.split(_loop(sch, info, info.reduced[0]), None, k_chunk)
    sums = block_info_of(sch, sch.rfactor(chunks))
    lane_loop, *summed = (_loop(sch, sums, a) for a in (sums.spatial[-1], *sums.reduced))
    others = [x for x in own_loops(sch, sums.ref) if x not in (lane_loop, *summed)]
    parallel_loop, init = _accumulate(sch, target, sums, others, [], lane_loop, GEMV_K_STEP)
    vectorize_loop(sch, target, block_info_of(sch, init), own_loops(sch, init)[-1])
    _reduce_chunks(sch, target, block_info_of(sch, info.ref), consumer)
    return parallel_loop


def _pad_columns(sch: Schedule, info: BlockInfo, multiple: int) -> None:
    """Pad N, so that accumulation needs no guards; only loads of the last columns are masked."""
    wanted = [multiple if a == info.spatial[-1] else 1 for a in info.block.axes]
    sch.pad(info.ref, *wanted, beyond="zero")


def _accumulate(
    sch: Schedule, target: Target, info: BlockInfo, outer: list[LoopRef], rows: list[LoopRef],
    columns: LoopRef, step: int,
) -> tuple[LoopRef, BlockRef]:  # fmt: skip
    """Tile and order the nest; `outer` fused to one loop, and the block that zeroes C."""
    *before, k_loop = [_loop(sch, info, a) for a in info.reduced]
    tiles, vectors, lanes = sch.split(columns, None, VECTORS, target.lanes(info.dtype))
    k_outer, k_inner = sch.split(k_loop, None, step)
    sch.reorder(*outer, *before, k_outer, tiles, *rows, k_inner, vectors, lanes)
    parallel_loop = sch.fuse(*outer) if len(outer) > 1 else outer[0]
    init = sch.decompose_reduction(info.ref, [*before, k_outer][0])
    sch.vectorize(lanes)
    for loop in (k_inner, vectors):
        sch.unroll(loop)
    return parallel_loop, init


def _reduce_chunks(
    sch: Schedule, target: Target, info: BlockInfo, consumer: BlockRef | None
) -> None:
    """Sum the partial results of all chunks, a vector of columns at a time."""
    lane_loop, chunks = (_loop(sch, info, a) for a in (info.spatial[-1], info.reduced[0]))
    columns, lanes = sch.split(lane_loop, None, target.lanes(info.dtype))
    sch.reorder(columns, chunks, lanes)
    sch.vectorize(lanes)
    sch.unroll(chunks)
    if consumer is not None:
        sch.reverse_compute_at(consumer, columns)
        vectorize_loop(sch, target, block_info_of(sch, consumer), own_loops(sch, consumer)[-1])


def _loop(sch: Schedule, info: BlockInfo, axis: Axis) -> LoopRef:
    loop = loop_of(sch, info, axis)
    assert loop is not None, "each axis of the block has a loop"
    return loop

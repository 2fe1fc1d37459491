"""Apply: small-M GEMM and GEMV, where the row-major operand B (K × N) is not worth packing.

    for blocks of columns (parallel):
        zero the block of C
        for k in steps of 4:
            for columns in vectors: for rows: for k of the step (unrolled): for vectors, lanes
        the epilogue, on the block

A register tile would read one narrow column panel of B: each of its rows is on another page, and
the hardware prefetcher does not follow. With few rows packing does not pay either. So B is read in
place and once, a few of its rows at a time, while the block of C stays in the L1 cache. For a GEMV
the fastest access is one stream from end to end: threads then split K (split-K), not N. In: a GEMM
whose B is contiguous along the lanes, and its plan (cost/small_m_gemm.py). Out: the loop to
parallelise; a refused step is an error.
"""

from __future__ import annotations

from ingot.cost.plan import ContractionPlan
from ingot.loops.ir import Axis
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.block_info import BlockInfo, block_info_of, loop_of, own_loops
from ingot.schedule.rules.elementwise import vectorize_loop
from ingot.schedule.schedule import Schedule
from ingot.target import Target


def apply_column_blocks(
    sch: Schedule, target: Target, info: BlockInfo, plan: ContractionPlan, consumer: BlockRef | None
) -> LoopRef:
    assert plan.blocking is not None
    (width,) = plan.blocking.sizes
    _pad_columns(sch, info, width)
    lane_loop, k_loop = (_loop(sch, info, a) for a in (info.spatial[-1], info.reduced[0]))
    others = [x for x in own_loops(sch, info.ref) if x not in (lane_loop, k_loop)]
    batch, rows = others[:-1], others[-1:]  # a GEMV has no row loop
    block, inside = sch.split(lane_loop, None, width)
    parallel_loop, init = _accumulate(sch, info, plan, [*batch, block], rows, inside)
    if consumer is not None:
        sch.reverse_compute_at(consumer, parallel_loop)
    for each in (init, consumer):
        if each is not None:
            vectorize_loop(sch, target, block_info_of(sch, each), own_loops(sch, each)[-1])
    return parallel_loop


def apply_split_k(
    sch: Schedule, target: Target, info: BlockInfo, plan: ContractionPlan, consumer: BlockRef | None
) -> LoopRef:
    """split-K: one partial result per chunk of K, then their sum, with the consumer."""
    assert plan.blocking is not None and plan.tile is not None
    (k_chunk,) = plan.blocking.sizes
    _pad_columns(sch, info, plan.tile.columns)
    chunks, _ = sch.split(_loop(sch, info, info.reduced[0]), None, k_chunk)
    sums = block_info_of(sch, sch.rfactor(chunks))
    lane_loop, *summed = (_loop(sch, sums, a) for a in (sums.spatial[-1], *sums.reduced))
    others = [x for x in own_loops(sch, sums.ref) if x not in (lane_loop, *summed)]
    parallel_loop, init = _accumulate(sch, sums, plan, others, [], lane_loop)
    vectorize_loop(sch, target, block_info_of(sch, init), own_loops(sch, init)[-1])
    _reduce_chunks(sch, target, block_info_of(sch, info.ref), plan, consumer)
    return parallel_loop


def _pad_columns(sch: Schedule, info: BlockInfo, multiple: int) -> None:
    """Pad N, so that accumulation needs no guards; only loads of the last columns are masked."""
    wanted = [multiple if a == info.spatial[-1] else 1 for a in info.block.axes]
    sch.pad(info.ref, *wanted, beyond="zero")


def _accumulate(
    sch: Schedule, info: BlockInfo, plan: ContractionPlan, outer: list[LoopRef],
    rows: list[LoopRef], columns: LoopRef,
) -> tuple[LoopRef, BlockRef]:  # fmt: skip
    """Tile and order the nest; `outer` fused to one loop, and the block that zeroes C."""
    assert plan.tile is not None
    *before, k_loop = [_loop(sch, info, a) for a in info.reduced]
    tiles, vectors, lanes = sch.split(columns, None, plan.tile.vectors, plan.tile.lanes)
    k_outer, k_inner = sch.split(k_loop, None, plan.k_unroll)
    sch.reorder(*outer, *before, k_outer, tiles, *rows, k_inner, vectors, lanes)
    parallel_loop = sch.fuse(*outer) if len(outer) > 1 else outer[0]
    init = sch.decompose_reduction(info.ref, [*before, k_outer][0])
    sch.vectorize(lanes)
    for loop in (k_inner, vectors):
        sch.unroll(loop)
    return parallel_loop, init


def _reduce_chunks(
    sch: Schedule, target: Target, info: BlockInfo, plan: ContractionPlan, consumer: BlockRef | None
) -> None:
    """Sum the partial results of all chunks, a vector of columns at a time."""
    assert plan.tile is not None
    lane_loop, chunks = (_loop(sch, info, a) for a in (info.spatial[-1], info.reduced[0]))
    columns, lanes = sch.split(lane_loop, None, plan.tile.lanes)
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

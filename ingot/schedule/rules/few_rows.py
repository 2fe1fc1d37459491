"""Rule: products of few rows by an operand that arrives in rows of its own, too large to copy.

    for blocks of columns (parallel):
        the block of results is set to zero
        for k in steps of a few:
            for columns in vectors: for rows: for those k (written out): for vectors, lanes
        the consumer, on the block

A tile of a product goes down one narrow panel of the operand, a row a step: each row is another
page, and nothing is fetched ahead. With so few rows there is no use in copying the operand first,
so it is read as it lies, a few rows side by side, once. The block of results stays in the
first-level cache meanwhile. A single row is read fastest from end to end: threads share out its
steps then, and not its columns. In: a product whose operand with lanes is contiguous along them.
Out: the loop that threads share, or None where the product is of another kind.
"""

from __future__ import annotations

import math

from ingot.arith import expr as arith
from ingot.loops.ir import Axis
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.maps import PARALLEL_WORK, vectorize_loop
from ingot.schedule.rules.stages import Stage, loop_of, own_loops, stage_of
from ingot.schedule.schedule import Schedule
from ingot.target import Target

STEP = 4  # rows of the operand at a time
STEP_ALONE = 8  # for a single row, whose results are read and written again in each step
VECTORS = 2
CACHE_SHARE = 0.5  # of the first-level cache, for the block of results
LEAST_DEPTH = 64  # rows of the operand for each thread, where they are shared out
LEAST_COLUMNS = 64  # narrower ones are panels as they are
MAX_BLOCK = 4096


def schedule_few_rows(
    sch: Schedule, target: Target, stage: Stage, rows: int, consumer: BlockRef | None
) -> LoopRef | None:
    """`stage` has lanes along its last axis; `rows` is how many results use a vector of it."""
    columns = arith.as_int(stage.spatial[-1].extent)
    if columns is None or columns < LEAST_COLUMNS or len(stage.reduced) != 1:
        return None
    part = _part(target, stage) if rows == 1 else None
    if part is not None:
        with sch.attempt():
            return _by_depth(sch, target, stage, part, consumer)
    with sch.attempt():
        width = _block(target, stage, rows, columns)
        step = STEP_ALONE if rows == 1 else STEP
        return _by_columns(sch, target, stage, (width, step), consumer)
    return None


def schedule_column_sums(
    sch: Schedule, target: Target, stage: Stage, consumer: BlockRef | None
) -> LoopRef | None:
    """What is summed (or compared) down the columns of one array, as a global pool does: threads
    share out the rows. `stage` has lanes along its last axis and no other that is not of one."""
    part = _part(target, stage)
    if part is not None:
        with sch.attempt():
            return _by_depth(sch, target, stage, part, consumer)
    return None


def _block(target: Target, stage: Stage, rows: int, columns: int) -> int:
    """Columns of a block: as many as the cache holds results for, and as many blocks for each core;
    all of one size if that can be."""
    tile = VECTORS * target.lanes(stage.dtype)
    tiles = -(-columns // tile)
    row_bytes = rows * stage.dtype.storage_bytes
    most = int(target.caches[0] * CACHE_SHARE) // row_bytes // tile
    most = max(1, min(most, MAX_BLOCK // tile))
    cores = min(target.cores, tiles)
    count = -(-tiles // most)
    count += -count % cores
    fits = [n for n in range(count, 2 * count, cores) if tiles % n == 0]
    return tile * -(-tiles // (fits[0] if fits else count))


def _part(target: Target, stage: Stage) -> int | None:
    """How much of the first summed axis each core takes; None where there are too few rows to share
    out, or they are so long that a share of each is long, too."""
    first, *others = [arith.as_int(a.extent) for a in stage.reduced]
    columns = arith.as_int(stage.spatial[-1].extent)
    if first is None or columns is None or None in others or target.cores == 1:
        return None
    depth = first * math.prod(n for n in others if n is not None)
    if depth < LEAST_DEPTH * target.cores or depth * columns < 2 * PARALLEL_WORK:
        return None
    part = -(-first // target.cores)
    part += 0 if others else -part % STEP_ALONE
    return part if columns <= MAX_BLOCK and first > part else None


def _by_columns(
    sch: Schedule, target: Target, stage: Stage, sizes: tuple[int, int], consumer: BlockRef | None
) -> LoopRef:
    """`sizes`: columns of a block, rows of the operand at a time."""
    width, step = sizes
    _pad_columns(sch, stage, width)
    lane_loop, k_loop = (_loop(sch, stage, a) for a in (stage.spatial[-1], stage.reduced[0]))
    others = [x for x in own_loops(sch, stage.ref) if x not in (lane_loop, k_loop)]
    batch, rows = others[:-1], others[-1:]  # a product with a vector has no rows
    block, inside = sch.split(lane_loop, None, width)
    shared, start = _sums(sch, target, stage, [*batch, block], rows, inside, step)
    if consumer is not None:
        sch.reverse_compute_at(consumer, shared)
    for each in (start, consumer):
        if each is not None:
            vectorize_loop(sch, target, stage_of(sch, each), own_loops(sch, each)[-1])
    return shared


def _by_depth(
    sch: Schedule, target: Target, stage: Stage, part: int, consumer: BlockRef | None
) -> LoopRef:
    """Each part of the summed axis by itself, then the sum of those, with the consumer."""
    _pad_columns(sch, stage, VECTORS * target.lanes(stage.dtype))
    parts, _ = sch.split(_loop(sch, stage, stage.reduced[0]), None, part)
    sums = stage_of(sch, sch.rfactor(parts))
    lane_loop, *summed = (_loop(sch, sums, a) for a in (sums.spatial[-1], *sums.reduced))
    others = [x for x in own_loops(sch, sums.ref) if x not in (lane_loop, *summed)]
    shared, start = _sums(sch, target, sums, others, [], lane_loop, STEP_ALONE)
    vectorize_loop(sch, target, stage_of(sch, start), own_loops(sch, start)[-1])
    _add_up(sch, target, stage_of(sch, stage.ref), consumer)
    return shared


def _pad_columns(sch: Schedule, stage: Stage, multiple: int) -> None:
    """Sums need no guards then; only loads of the last columns have masks."""
    wanted = [multiple if a == stage.spatial[-1] else 1 for a in stage.block.axes]
    sch.pad(stage.ref, *wanted, beyond="zero")


def _sums(
    sch: Schedule, target: Target, stage: Stage, outer: list[LoopRef], rows: list[LoopRef],
    columns: LoopRef, step: int,
) -> tuple[LoopRef, BlockRef]:  # fmt: skip
    """Order and mark the nest; all of `outer` as one loop, and the block that sets sums to zero."""
    *before, k_loop = [_loop(sch, stage, a) for a in stage.reduced]
    tiles, vectors, lanes = sch.split(columns, None, VECTORS, target.lanes(stage.dtype))
    k_outer, k_inner = sch.split(k_loop, None, step)
    sch.reorder(*outer, *before, k_outer, tiles, *rows, k_inner, vectors, lanes)
    shared = sch.fuse(*outer) if len(outer) > 1 else outer[0]
    start = sch.decompose_reduction(stage.ref, [*before, k_outer][0])
    sch.vectorize(lanes)
    for loop in (k_inner, vectors):
        sch.unroll(loop)
    return shared, start


def _add_up(sch: Schedule, target: Target, stage: Stage, consumer: BlockRef | None) -> None:
    """The sums of all parts, a vector of columns at a time."""
    lane_loop, parts = (_loop(sch, stage, a) for a in (stage.spatial[-1], stage.reduced[0]))
    columns, lanes = sch.split(lane_loop, None, target.lanes(stage.dtype))
    sch.reorder(columns, parts, lanes)
    sch.vectorize(lanes)
    sch.unroll(parts)
    if consumer is not None:
        sch.reverse_compute_at(consumer, columns)
        vectorize_loop(sch, target, stage_of(sch, consumer), own_loops(sch, consumer)[-1])


def _loop(sch: Schedule, stage: Stage, axis: Axis) -> LoopRef:
    loop = loop_of(sch, stage, axis)
    assert loop is not None, "a stage has a loop for each axis"
    return loop

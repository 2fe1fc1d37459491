"""Rule: products of few rows by an operand that arrives in rows of its own, too large to copy.

    for blocks of columns (parallel):
        the block of results is set to zero
        for k in steps of a few:
            for columns in vectors: for rows: for those k (written out): for vectors, lanes
        the consumer, on the block

A tile of a product goes down one narrow panel of the operand, a row a step: each row is another
page, and nothing is fetched ahead. With so few rows there is no use in copying the operand first,
so it is read as it lies, a few rows side by side, once. The block of results stays in the
first-level cache meanwhile. In: a product whose operand with lanes is contiguous along them. Out:
the loop over blocks, or None where the product is of another kind.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops.ir import Axis
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.maps import vectorize_loop
from ingot.schedule.rules.stages import Stage, loop_of, own_loops, stage_of
from ingot.schedule.schedule import Schedule
from ingot.target import Target

STEP = 4  # rows of the operand at a time
STEP_ALONE = 8  # for a single row, whose results are read and written again in each step
VECTORS = 2
CACHE_SHARE = 0.5  # of the first-level cache, for the block of results
LEAST_COLUMNS = 64  # narrower ones are panels as they are
MAX_BLOCK = 4096


def schedule_few_rows(
    sch: Schedule, target: Target, stage: Stage, rows: int, consumer: BlockRef | None
) -> LoopRef | None:
    """`stage` has lanes along its last axis; `rows` is how many results use a vector of it."""
    columns = arith.as_int(stage.spatial[-1].extent)
    if columns is None or columns < LEAST_COLUMNS or len(stage.reduced) != 1:
        return None
    tile = VECTORS * target.lanes(stage.dtype)
    with sch.attempt():
        width = _block(target, stage, rows, columns + -columns % tile)
        step = STEP_ALONE if rows == 1 else STEP
        return _blocks(sch, target, stage, (width, step), consumer)
    return None


def _block(target: Target, stage: Stage, rows: int, columns: int) -> int:
    """Columns of a block: as many as the cache holds results for, in blocks of about one size."""
    tile = VECTORS * target.lanes(stage.dtype)
    row_bytes = rows * stage.dtype.storage_bytes
    most = int(target.caches[0] * CACHE_SHARE) // row_bytes // tile * tile
    most = max(tile, min(most, MAX_BLOCK))
    count = max(-(-columns // most), min(target.cores, columns // tile))
    tiles = columns // tile
    fits = [n for n in range(count, 2 * count) if tiles % n == 0]
    return tile * -(-tiles // (fits[0] if fits else count))


def _blocks(
    sch: Schedule, target: Target, stage: Stage, sizes: tuple[int, int], consumer: BlockRef | None
) -> LoopRef:
    """`sizes`: columns of a block, rows of the operand at a time."""
    width, step = sizes
    lane_loop, k_loop = (_loop(sch, stage, a) for a in (stage.spatial[-1], stage.reduced[0]))
    others = [x for x in own_loops(sch, stage.ref) if x not in (lane_loop, k_loop)]
    batch, rows = others[:-1], others[-1:]  # a product with a vector has no rows
    block, inside = sch.split(lane_loop, None, width)
    columns, vectors, lanes = sch.split(inside, None, VECTORS, target.lanes(stage.dtype))
    k_outer, k_inner = sch.split(k_loop, None, step)
    sch.reorder(*batch, block, k_outer, columns, *rows, k_inner, vectors, lanes)
    shared = sch.fuse(*batch, block) if batch else block
    start = sch.decompose_reduction(stage.ref, k_outer)
    if consumer is not None:
        sch.reverse_compute_at(consumer, shared)
    sch.vectorize(lanes)
    for loop in (k_inner, vectors):
        sch.unroll(loop)
    for each in (start, consumer):
        if each is not None:
            vectorize_loop(sch, target, stage_of(sch, each), own_loops(sch, each)[-1])
    return shared


def _loop(sch: Schedule, stage: Stage, axis: Axis) -> LoopRef:
    loop = loop_of(sch, stage, axis)
    assert loop is not None, "a stage has a loop for each axis"
    return loop

"""Rule: reductions of windows lane by lane, as depthwise convolutions and pools are.

    for images, channels in vectors, blocks of rows (parallel):
        the padded rows that the block needs
        for rows: for tiles of columns: for taps: for columns (unrolled): for vectors: for lanes
                                        the epilogue on the tile

Each input element is used a few times only, so the copy with the borders filled in must not travel
through memory: a thread makes it for one block of rows, small enough to stay in its own cache. In:
a nest whose operands all run along the lanes, one of them a padded copy. Out: the tiled nest.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops.ir import Axis
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.maps import vectorize_loop
from ingot.schedule.rules.stages import (
    Stage,
    index_vars,
    loop_of,
    own_loops,
    stage_of,
    stages,
)
from ingot.schedule.schedule import Schedule
from ingot.target import Target

COLUMNS = 3  # of a tile: enough to use each tap's weights again
VECTORS = (4, 2, 1)
CACHE_SHARE = 0.25  # of the second-level cache, for the padded rows of a block


def padded_source(sch: Schedule, stage: Stage) -> BlockRef | None:
    """The stage that fills in the borders, if all operands run along the lanes."""
    lanes = stage.spatial[-1]
    if not all(_uses(stage, x.indices, lanes) for x in stage.loads):
        return None
    read = {x.buffer.name for x in stage.loads}
    makers = [s for s in stages(sch) if s.is_map and s.outputs & read]
    return makers[0].ref if len(makers) == 1 else None


def _uses(stage: Stage, indices: tuple[arith.Expr, ...], axis: Axis) -> bool:
    return any(axis.var in index_vars(i) for i in indices)


def schedule_window(
    sch: Schedule, target: Target, stage: Stage, source: BlockRef, consumer: BlockRef | None
) -> LoopRef | None:
    """The loop over blocks of rows, or None where the sizes do not suit."""
    *others, down, across, lanes = stage.spatial
    sizes = [arith.as_int(a.extent) for a in (down, across, lanes)]
    width = target.lanes(stage.dtype)
    if None in sizes or sizes[2] % width or sizes[0] < 2:  # type: ignore[operator]
        return None
    vectors = next(n for n in VECTORS if sizes[2] % (n * width) == 0)  # type: ignore[operator]
    rows = _rows_of_a_block(sizes, vectors * width * stage.dtype.storage_bytes, target)  # type: ignore[arg-type]
    wanted = {across.var: COLUMNS, down.var: rows}
    sch.pad(stage.ref, *(wanted.get(a.var, 1) for a in stage.block.axes))
    loops = {a.var: loop_of(sch, stage, a) for a in stage.block.axes}
    block, row = sch.split(_there(loops[down.var]), None, rows)
    tile, column = sch.split(_there(loops[across.var]), None, COLUMNS)
    panel, vector, lane = sch.split(_there(loops[lanes.var]), None, vectors, width)
    taps = [_there(loops[a.var]) for a in stage.reduced]
    outer = [*(_there(loops[a.var]) for a in others), panel, block]
    sch.reorder(*outer, row, tile, *taps, column, vector, lane)
    shared = sch.fuse(*outer)
    sch.compute_at(source, shared)
    if consumer is not None:
        _ride(sch, target, consumer, tile)
    vectorize_loop(sch, target, stage_of(sch, source), own_loops(sch, source)[-1])
    sch.vectorize(lane)
    for loop in (vector, column):
        sch.unroll(loop)
    return shared


def _rows_of_a_block(sizes: list[int], pixel_bytes: int, target: Target) -> int:
    """Rows whose padded copy stays in the cache, in blocks of one size."""
    down, across, _ = sizes
    room = int((target.caches[1] if len(target.caches) > 1 else 1 << 18) * CACHE_SHARE)
    most = max(1, min(down, room // (across * pixel_bytes)))
    return -(-down // -(-down // most))


def _ride(sch: Schedule, target: Target, consumer: BlockRef, tile: LoopRef) -> None:
    sch.reverse_compute_at(consumer, tile)
    *outer, last = own_loops(sch, consumer)
    made = vectorize_loop(sch, target, stage_of(sch, consumer), last)
    for loop in [*outer, *made[:-1]]:
        if arith.as_int(sch.at_loop(loop).extent) is not None:
            sch.unroll(loop)


def _there(loop: LoopRef | None) -> LoopRef:
    assert loop is not None, "a stage has a loop for each axis"
    return loop

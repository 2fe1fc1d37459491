"""Rule: reductions in register tiles: matrix products, convolutions, pools.

    for outer tiles (parallel): for k…: for rows (unrolled): for vectors (unrolled): for lanes
                                for rows, vectors, lanes of the epilogue

The lanes run along the output's last axis; the rows along an axis that the loads with lanes do not
depend on, so a loaded vector is used for every row. The stage that consumes the result rides on the
tile. In: a top-level nest around one reduction. Out: the tiled nest, or a simpler one where the
access pattern has no lanes.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.arith.affine import coefficient
from ingot.loops import visit
from ingot.loops.ir import Axis, Load
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules import tile as tiles
from ingot.schedule.rules.maps import PARALLEL_WORK, vectorize_loop
from ingot.schedule.rules.stages import (
    Stage,
    elements,
    extent,
    index_vars,
    loop_of,
    own_loops,
    plain_index,
    stage_of,
    stages,
    value_vars,
)
from ingot.schedule.schedule import Schedule
from ingot.target import Target

MAX_UNROLL = 16


@dataclass(frozen=True)
class Roles:
    """What the spatial axes of a reduction are for."""

    lanes: Axis
    rows: Axis | None


def schedule_reduction(sch: Schedule, target: Target, stage: Stage, eager: bool) -> None:
    """A reduction nest at top level. `eager` vectorises even where no load is contiguous."""
    is_big = _has_work(sch, stage)
    roles = find_roles(stage, eager)
    consumer = _consumer(sch, stage)
    shared: LoopRef | None = None
    if roles is not None:
        with sch.attempt():
            shared = _tiled(sch, target, stage, roles, consumer)
    if shared is None:
        shared = _plain(sch, target, stage, consumer)
    if shared is not None and is_big:
        with sch.attempt():
            sch.parallel(shared)


def _has_work(sch: Schedule, stage: Stage) -> bool:
    count = elements(sch, stage)
    return count is None or count >= 2 * PARALLEL_WORK


def find_roles(stage: Stage, eager: bool) -> Roles | None:
    """Lanes along the last spatial axis, if some load is contiguous along it and none gathers."""
    spatial = [a for a in stage.spatial if a.extent != 1]
    loads = stage.loads
    if not spatial or not loads:
        return None
    lanes = spatial[-1]
    if any(_gathers(x, lanes) for x in loads):
        return None
    moving = [x for x in loads if any(lanes.var in index_vars(i) for i in x.indices)]
    if not eager and not any(_is_contiguous(stage, x, lanes) for x in moving):
        return None
    return Roles(lanes, _rows_axis(spatial[:-1], loads, moving))


def _gathers(load: Load, axis: Axis) -> bool:
    inside = [v for i in load.indices for v in visit.opaque_values(i)]
    return any(axis.var in value_vars(v) for v in inside)


def _is_contiguous(stage: Stage, load: Load, axis: Axis) -> bool:
    *outer, last = (plain_index(stage.block, i) for i in load.indices)
    if any(axis.var in index_vars(i) for i in outer):
        return False
    step = coefficient(last, axis.var)
    return step is not None and arith.is_const(step, 1)


def _rows_axis(others: list[Axis], loads: list[Load], moving: list[Load]) -> Axis | None:
    """The axis along which a loaded vector is used again; else one along which a scalar is."""
    still = [x for x in loads if x not in moving]
    for group in (moving, still):
        free = [a for a in others if group and not any(_mentions(x, a) for x in group)]
        if free:
            return max(free, key=lambda a: (_size(a), others.index(a)))
    return None


def _mentions(load: Load, axis: Axis) -> bool:
    return any(axis.var in index_vars(i) for i in load.indices)


def _size(axis: Axis) -> int:
    number = arith.as_int(axis.extent)
    return tiles.GUESS if number is None else number


def _consumer(sch: Schedule, stage: Stage) -> BlockRef | None:
    """The one map that reads the result, if there is just one."""
    readers = [
        s for s in stages(sch) if s.ref != stage.ref and any(_reads(s, n) for n in stage.outputs)
    ]
    return readers[0].ref if len(readers) == 1 and readers[0].is_map else None


def _reads(stage: Stage, name: str) -> bool:
    return any(x.buffer.name == name for x in stage.loads)


def _tiled(
    sch: Schedule, target: Target, stage: Stage, roles: Roles, consumer: BlockRef | None
) -> LoopRef:
    """Tile, order and mark the nest; the loop over tiles."""
    lane_loop = _must(loop_of(sch, stage, roles.lanes))
    row_loop = loop_of(sch, stage, roles.rows) if roles.rows is not None else None
    rows = extent(sch, row_loop) if row_loop is not None else 1
    tile = tiles.choose(
        rows, extent(sch, lane_loop), target.lanes(stage.dtype), target.vector_registers
    )
    reduced = [_must(loop_of(sch, stage, a)) for a in stage.reduced]
    outer = [x for x in own_loops(sch, stage.ref) if x not in reduced]
    inner: list[LoopRef] = []
    row_inner = None
    if row_loop is not None and tile.rows > 1:
        outer, row_inner = _cut(sch, outer, row_loop, tile.rows)
        inner.append(row_inner)
    outer, lane_inner = _cut(sch, outer, lane_loop, tile.vectors * tile.width)
    vectors, lanes = _lanes(sch, lane_inner, tile)
    inner += [*vectors, lanes]
    sch.reorder(*outer, *reduced, *inner)
    shared = sch.fuse(*outer) if len(outer) > 1 else outer[0]
    if consumer is not None:
        with sch.attempt():
            _ride(sch, target, consumer, shared)
    sch.vectorize(lanes)
    for loop in [*vectors, *([row_inner] if row_inner is not None else [])]:
        sch.unroll(loop)
    return shared


def _must(loop: LoopRef | None) -> LoopRef:
    assert loop is not None, "a stage has a loop for each axis"
    return loop


def _cut(
    sch: Schedule, outer: list[LoopRef], loop: LoopRef, size: int
) -> tuple[list[LoopRef], LoopRef]:
    """Split `loop` by `size`; the outer part takes its place."""
    out, inner = sch.split(loop, None, size)
    return [out if x == loop else x for x in outer], inner


def _lanes(sch: Schedule, loop: LoopRef, tile: tiles.Tile) -> tuple[list[LoopRef], LoopRef]:
    if tile.vectors == 1:
        return [], loop
    vectors, lanes = sch.split(loop, tile.vectors, tile.width)
    return [vectors], lanes


def _ride(sch: Schedule, target: Target, consumer: BlockRef, shared: LoopRef) -> None:
    """The consumer on the tile: written out so that the tile may stay in registers."""
    sch.reverse_compute_at(consumer, shared)
    loops = own_loops(sch, consumer)
    if not loops:
        return
    made = vectorize_loop(sch, target, stage_of(sch, consumer), loops[-1])
    for loop in [*loops[:-1], *made]:
        node = sch.at_loop(loop)
        count = arith.as_int(node.extent)
        if node.kind.value == "serial" and count is not None and count <= MAX_UNROLL:
            sch.unroll(loop)


def _plain(
    sch: Schedule, target: Target, stage: Stage, consumer: BlockRef | None
) -> LoopRef | None:
    """No lanes: one output at a time, its consumer after it. The last loop stays inside, so that
    places are not divided out again for each output, unless the others are too few to share."""
    outer = [x for x in (loop_of(sch, stage, a) for a in stage.spatial) if x is not None]
    own = own_loops(sch, stage.ref)
    if not outer or own[: len(outer)] != outer:
        return None
    count = arith.as_int(arith.product([sch.at_loop(x).extent for x in outer[:-1]]))
    keep_last = count is None or count >= 4 * target.cores
    first = outer[:-1] if keep_last else outer
    shared = sch.fuse(*first) if len(first) > 1 else first[0]
    if consumer is not None:
        with sch.attempt():
            sch.reverse_compute_at(consumer, outer[-1] if keep_last else shared)
    return shared

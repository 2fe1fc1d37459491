"""Rule: reductions in register tiles: matrix products, convolutions, pools.

    for outer tiles (parallel): for k…: for rows (unrolled): for vectors (unrolled): for lanes
                                for rows, vectors, lanes of the epilogue

The lanes run along the output's last axis; the rows along an axis that the loads with lanes do not
depend on, so a loaded vector is used for every row. The stage that consumes the result rides on the
tile. In: a top-level nest around one reduction. Out: the tiled nest, or a simpler one where the
access pattern has no lanes.
"""

from __future__ import annotations

from ingot import tiles
from ingot.arith import expr as arith
from ingot.loops.ir import Axis
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.few_rows import schedule_column_sums, schedule_few_rows
from ingot.schedule.rules.long_sums import sum_in_parts
from ingot.schedule.rules.maps import MAX_UNROLL, PARALLEL_WORK, write_out
from ingot.schedule.rules.panels import copy_by_panel, fetch_ahead, pack_operand, split_to_fetch
from ingot.schedule.rules.roles import (
    PACK_ROWS,
    Roles,
    are_apart,
    find_roles,
    has_lanes,
    is_column_sum,
    is_contiguous,
    mentions,
    panel_of,
    size_of,
)
from ingot.schedule.rules.stages import (
    Stage,
    elements,
    extent,
    index_vars,
    loop_of,
    own_loops,
    stage_of,
    stages,
)
from ingot.schedule.rules.steps import write_out_steps
from ingot.schedule.rules.windows import copy_by_block, down_the_map
from ingot.schedule.schedule import Schedule
from ingot.support import knobs
from ingot.target import Target


def schedule_reduction(sch: Schedule, target: Target, stage: Stage, eager: bool) -> None:
    """A reduction nest at top level. `eager` vectorises even where no load is contiguous."""
    is_big = _has_work(sch, stage)
    consumer = _consumer(sch, stage)
    if any(loop_of(sch, stage, a) is None for a in stage.block.axes if a.extent != 1):
        return  # the end of another nest, which was scheduled with that
    packed = find_roles(stage, eager=True)
    if packed is None or not pack_operand(sch, stage, packed, _tile(target, stage, packed).columns):
        packed = None
    roles = packed or find_roles(stage, eager)
    shared: LoopRef | None = None
    is_streamed = roles is not None and packed is None and _is_streamed(stage, roles)
    if roles is not None and is_streamed and knobs.current().few_rows:
        rows = 1 if roles.rows is None else size_of(roles.rows)
        shared = schedule_few_rows(sch, target, stage, rows, consumer)
    if roles is not None and shared is None:
        with sch.attempt():
            shared = _tiled(sch, target, stage_of(sch, stage.ref), roles, consumer)
    if shared is None:
        shared = _plain(sch, target, stage_of(sch, stage.ref), consumer)
    if shared is not None and is_big:
        with sch.attempt():
            sch.parallel(shared)


def schedule_column_sum(sch: Schedule, target: Target, stage: Stage) -> bool:
    """One array reduced to one row, if threads may share out its rows; False leaves it alone."""
    if not _has_work(sch, stage) or not is_column_sum(stage) or not knobs.current().few_rows:
        return False
    shared = schedule_column_sums(sch, target, stage, _consumer(sch, stage))
    if shared is None:
        return False
    with sch.attempt():
        sch.parallel(shared)
    return True


def _is_streamed(stage: Stage, roles: Roles) -> bool:
    """Is it a plain product of few rows, whose other operand lies in rows along the lanes?"""
    rows = 1 if roles.rows is None else size_of(roles.rows)
    moving = [x for x in stage.loads if has_lanes(stage, x, roles.lanes)]
    if rows >= PACK_ROWS or len(moving) != 1 or panel_of(stage, roles.lanes) is not None:
        return False
    plain = all(isinstance(i, arith.Var | arith.Const) for x in stage.loads for i in x.indices)
    return plain and len(stage.loads) == 2 and is_contiguous(stage, moving[0], roles.lanes)


def _has_work(sch: Schedule, stage: Stage) -> bool:
    count = elements(sch, stage)
    return count is None or count >= 2 * PARALLEL_WORK


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
    tile = _tile(target, stage, roles)
    per_block = _tiles_per_block(target, stage, roles, tile)
    _pad_to_tiles(sch, stage, roles, tile, per_block or 1)
    lane_loop = _must(loop_of(sch, stage, roles.lanes))
    row_loop = loop_of(sch, stage, roles.rows) if roles.rows is not None else None
    reduced = [_must(loop_of(sch, stage, a)) for a in _reduce_order(stage, roles)]
    outer = [x for x in own_loops(sch, stage.ref) if x not in (*reduced, lane_loop, row_loop)]
    apart = _products(sch, stage, outer)
    outer = [*apart, *(x for x in outer if x not in apart)]
    panel, lane_inner = sch.split(lane_loop, None, tile.columns)
    vectors, lanes = _lanes(sch, lane_inner, tile)
    inner = [*vectors, lanes]
    row_inner = order = None
    if row_loop is None or tile.rows == 1:
        outer += [panel] if row_loop is None else [panel, row_loop]
    else:
        row_tile, row_inner = sch.split(row_loop, None, tile.rows)
        inner.insert(0, row_inner)
        order = down_the_map(sch, target, stage, roles, tile, [*outer, row_tile, panel])
        rows = [*outer[len(apart) :], row_tile]
        outer = order.loops if order else [*apart, *_in_blocks(sch, rows, panel, per_block)]
    sch.reorder(*outer, *reduced, *inner)
    is_ordered = row_inner is not None and panel in outer
    over_rows = outer[outer.index(panel) + 1 :] if is_ordered else []
    fetched = split_to_fetch(sch, target, stage, roles, over_rows, reduced)
    reduced = sum_in_parts(sch, target, stage, reduced)
    if fetched is not None:
        fetch_ahead(sch, fetched, panel, reduced[-2])
    near = copy_by_block(sch, target, order) if order else None
    if outer[0] == panel:
        near = copy_by_panel(sch, target, stage, roles, outer)
    if near is None:
        near = (sch.fuse(*outer) if len(outer) > 1 else outer[0],) * 2
    shared, ride = near
    if consumer is not None:
        with sch.attempt():
            _ride(sch, target, consumer, ride)
    sch.vectorize(lanes)
    for loop in [*vectors, *([row_inner] if row_inner is not None else [])]:
        sch.unroll(loop)
    if not tile.is_apart:
        write_out_steps(sch, tile.rows, reduced[-1])
    elif (extent(sch, reduced[-1]) or MAX_UNROLL) < MAX_UNROLL:
        sch.unroll(reduced[-1])  # neighbours read the same vectors, a tap apart
    return shared


def _tile(target: Target, stage: Stage, roles: Roles) -> tiles.Tile:
    rows = 1 if roles.rows is None else arith.as_int(roles.rows.extent)
    columns = arith.as_int(roles.lanes.extent)
    lanes, panel = target.lanes(stage.dtype), panel_of(stage, roles.lanes)
    if panel is not None and panel % lanes:
        in_groups = any(
            mentions(x, roles.lanes) and not has_lanes(stage, x, roles.lanes) for x in stage.loads
        )
        fitting = tiles.even_lanes(panel, lanes) if in_groups else None
        lanes, panel = fitting or lanes, panel if fitting else None  # or not made for tiles
    if panel is None and columns is not None and columns < lanes:
        lanes = max(columns, 1)
    is_apart = roles.rows is not None and are_apart(stage, roles.lanes, roles.rows)
    return tiles.register_tile(rows, columns, lanes, target.vector_registers, panel, is_apart)


def _pad_to_tiles(
    sch: Schedule, stage: Stage, roles: Roles, tile: tiles.Tile, per_block: int
) -> None:
    """Whole tiles only: what the last ones compute beyond the end, nobody reads."""
    wanted: dict[str, int] = {}
    if panel_of(stage, roles.lanes) is not None:  # else vectors would become gathers
        wanted[roles.lanes.var] = tile.columns
    if roles.rows is not None:
        wanted[roles.rows.var] = tile.rows * per_block
    with sch.attempt():
        sch.pad(stage.ref, *(wanted.get(a.var, 1) for a in stage.block.axes))


def _reduce_order(stage: Stage, roles: Roles) -> list[Axis]:
    """Innermost, the axis along which the numbers that are no vectors lie side by side."""
    last = {
        name
        for x in stage.loads
        if not has_lanes(stage, x, roles.lanes)
        for name in (index_vars(x.indices[-1]) if x.indices else ())
    }
    return sorted(stage.reduced, key=lambda a: a.var in last)


def _tiles_per_block(target: Target, stage: Stage, roles: Roles, tile: tiles.Tile) -> int | None:
    if roles.rows is None or tile.rows == 1 or not knobs.current().row_blocks:
        return None
    size = stage.dtype.storage_bytes
    rows, columns = arith.as_int(roles.rows.extent), arith.as_int(roles.lanes.extent)
    depth = arith.as_int(arith.product([a.extent for a in stage.reduced]))
    own = arith.as_int(arith.product([a.extent for a in _own_depth(stage, roles)]))
    return tiles.row_tiles_per_block(
        None if rows is None else -(-rows // tile.rows),
        None if own is None else own * tile.rows * size,
        None if depth is None or columns is None else depth * columns * size,
        target.caches,
    )


def _own_depth(stage: Stage, roles: Roles) -> list[Axis]:
    """The summed axes along which rows do not overlap: a window's taps read what others read."""
    still = [x for x in stage.loads if not has_lanes(stage, x, roles.lanes)]
    alone = {i.name for x in still for i in x.indices if isinstance(i, arith.Var)}
    return [a for a in stage.reduced if a.var in alone]


def _products(sch: Schedule, stage: Stage, loops: list[LoopRef]) -> list[LoopRef]:
    """Of some loops, those over products that have no operand in common: one at a time."""
    if len(stage.loads) < 2:
        return []
    axes = [a for a in stage.spatial if all(mentions(x, a) for x in stage.loads)]
    return [x for x in (loop_of(sch, stage, a) for a in axes) if x in loops]


def _in_blocks(
    sch: Schedule, rows: list[LoopRef], panel: LoopRef, per_block: int | None
) -> list[LoopRef]:
    """Panels outside, all rows inside; in blocks of rows where they would not stay in cache."""
    if per_block is None:
        return [panel, *rows]
    if per_block == 1:
        return [*rows, panel]
    block, within = sch.split(rows[-1], None, per_block)
    return [*rows[:-1], block, panel, within]


def _must(loop: LoopRef | None) -> LoopRef:
    assert loop is not None, "a stage has a loop for each axis"
    return loop


def _lanes(sch: Schedule, loop: LoopRef, tile: tiles.Tile) -> tuple[list[LoopRef], LoopRef]:
    if tile.vectors == 1:
        return [], loop
    vectors, lanes = sch.split(loop, tile.vectors, tile.lanes)
    return [vectors], lanes


def _ride(sch: Schedule, target: Target, consumer: BlockRef, shared: LoopRef) -> None:
    """The consumer on the tile: written out so that the tile may stay in registers."""
    sch.reverse_compute_at(consumer, shared)
    write_out(sch, target, consumer)


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

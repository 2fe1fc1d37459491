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

from ingot import tiles
from ingot.arith import expr as arith
from ingot.arith.affine import coefficient
from ingot.loops import visit
from ingot.loops.ir import Axis, Load
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.few_rows import schedule_few_rows
from ingot.schedule.rules.maps import PARALLEL_WORK, vectorize_loop
from ingot.schedule.rules.stages import (
    Stage,
    elements,
    extent,
    index_vars,
    intermediates,
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
NARROW = 64  # elements of a row that need no packing
PACK_ROWS = 24  # rows that pay for copying an operand into panels first


@dataclass(frozen=True)
class Roles:
    """What the spatial axes of a reduction are for."""

    lanes: Axis
    rows: Axis | None


def schedule_reduction(sch: Schedule, target: Target, stage: Stage, eager: bool) -> None:
    """A reduction nest at top level. `eager` vectorises even where no load is contiguous."""
    is_big = _has_work(sch, stage)
    consumer = _consumer(sch, stage)
    if any(loop_of(sch, stage, a) is None for a in stage.block.axes if a.extent != 1):
        return  # the end of another nest, which was scheduled with that
    packed = find_roles(stage, eager=True)
    if packed is None or not pack_operand(sch, target, stage, packed):
        packed = None
    roles = packed or find_roles(stage, eager)
    shared: LoopRef | None = None
    if roles is not None and packed is None and _is_streamed(stage, roles):
        rows = 1 if roles.rows is None else _size(roles.rows)
        shared = schedule_few_rows(sch, target, stage, rows, consumer)
    if roles is not None and shared is None:
        with sch.attempt():
            shared = _tiled(sch, target, stage_of(sch, stage.ref), roles, consumer)
    if shared is None:
        shared = _plain(sch, target, stage_of(sch, stage.ref), consumer)
    if shared is not None and is_big:
        with sch.attempt():
            sch.parallel(shared)


def _is_streamed(stage: Stage, roles: Roles) -> bool:
    """Is it a plain product of few rows, whose other operand lies in rows along the lanes?"""
    rows = 1 if roles.rows is None else _size(roles.rows)
    moving = [x for x in stage.loads if _has_lanes(stage, x, roles.lanes)]
    if rows >= PACK_ROWS or len(moving) != 1 or panel_of(stage, roles.lanes) is not None:
        return False
    plain = all(isinstance(i, arith.Var | arith.Const) for x in stage.loads for i in x.indices)
    return plain and len(stage.loads) == 2 and is_contiguous(stage, moving[0], roles.lanes)


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
    moving = [x for x in loads if _has_lanes(stage, x, lanes)]
    runs = [is_contiguous(stage, x, lanes) or _is_panelled(x, lanes) for x in moving]
    if not eager and not any(runs):
        return None
    return Roles(lanes, _rows_axis(spatial[:-1], loads, moving))


def pack_operand(
    sch: Schedule, target: Target, stage: Stage, roles: Roles, width: int | None = None
) -> bool:
    """Copy the operand with lanes into panels, where enough rows use them; whether it was done."""
    if roles.rows is None or panel_of(stage, roles.lanes) is not None:
        return False
    if _size(roles.rows) < PACK_ROWS or not is_product(stage):
        return False
    (operand, *others) = [x for x in stage.loads if _has_lanes(stage, x, roles.lanes)]
    shared = any(x.buffer == operand.buffer and x != operand for x in stage.loads)
    order = _panel_order(stage, roles, operand)
    if others or shared or order is None or _is_narrow(stage, operand, roles.lanes):
        return False
    width = width or _tile(target, stage, roles).columns
    layout, name = order.format(width=width), operand.buffer.name
    with sch.attempt():
        if name in intermediates(sch):
            sch.transform_layout(name, layout)
        else:
            sch.cache_read(stage.ref, name, layout=layout)
        return True
    return False


def _is_narrow(stage: Stage, load: Load, lanes: Axis) -> bool:
    """Are its rows so short, and one after another, that they are as good as a panel?"""
    size = arith.as_int(load.buffer.shape[-1])
    summed = {arith.Var(a.var) for a in stage.reduced}
    before = [i for i, n in zip(load.indices[:-1], load.buffer.shape) if n != 1]
    is_dense = not before or before[-1] in summed
    is_row = load.indices[-1] == arith.Var(lanes.var)
    return is_row and is_dense and size is not None and size <= NARROW


def _panel_order(stage: Stage, roles: Roles, load: Load) -> str | None:
    """d0, d1, d2 -> d0, d2 // 16, d1, d2 % 16: lanes in panels, what is summed inside them. None
    where an index is not just an axis."""
    axes = {a.var: a for a in stage.block.axes}
    if load.mask is not None:
        return None
    outer, summed, lane = [], [], ""
    for d, index in enumerate(load.indices):
        axis = axes.get(index.name) if isinstance(index, arith.Var) else None
        if axis is None and arith.as_int(index) is None:
            return None
        if axis == roles.lanes:
            lane = f"d{d}"
        elif axis is not None and axis in stage.reduced:
            summed.append(f"d{d}")
        else:
            outer.append(f"d{d}")
    names = ", ".join(f"d{d}" for d in range(load.buffer.rank))
    places = [*outer, f"{lane} // {{width}}", *summed, f"{lane} % {{width}}"]
    return f"{names} -> {', '.join(places)}" if lane and summed else None


def is_product(stage: Stage) -> bool:
    """Does each element of some operand take part in many outputs?"""
    spatial = {a.var for a in stage.spatial if a.extent != 1}
    used = [{v for i in x.indices for v in index_vars(i)} for x in stage.loads]
    return len(used) > 1 and any(spatial - names for names in used)


def is_dot(stage: Stage) -> bool:
    """Do all operands run along the summed axis, with too few rows to copy one into panels?"""
    last, roles = stage.reduced[-1], find_roles(stage, eager=True)
    if roles is not None and roles.rows is not None and _size(roles.rows) >= PACK_ROWS:
        return False
    return len(stage.loads) > 1 and all(is_contiguous(stage, x, last) for x in stage.loads)


def _gathers(load: Load, axis: Axis) -> bool:
    inside = [v for i in load.indices for v in visit.opaque_values(i)]
    return any(axis.var in value_vars(v) for v in inside)


def is_contiguous(stage: Stage, load: Load, axis: Axis) -> bool:
    """Does the load run along the axis one element at a time?"""
    moves = [i for i, size in zip(load.indices, load.buffer.shape) if size != 1]
    if not moves:
        return False
    *outer, last = (plain_index(stage.block, i) for i in moves)
    if any(axis.var in index_vars(i) for i in outer):
        return False
    step = coefficient(last, axis.var)
    return step is not None and arith.is_const(step, 1)


def _is_panelled(load: Load, axis: Axis) -> bool:
    return isinstance(load.indices[-1], arith.Mod) and load.indices[-1].a == arith.Var(axis.var)


def _rows_axis(others: list[Axis], loads: list[Load], moving: list[Load]) -> Axis | None:
    """The axis along which a loaded vector is used again; else one along which a scalar is; else,
    of all that have lanes, the last along which one stays."""
    still = [x for x in loads if x not in moving]
    for group in (moving, still):
        free = [a for a in others if group and not any(_mentions(x, a) for x in group)]
        if free:
            return max(free, key=lambda a: (_rows_of(a), _size(a), others.index(a)))
    staying = [a for a in others if not all(_mentions(x, a) for x in moving)]
    return staying[-1] if staying else None


def _rows_of(axis: Axis) -> int:
    """How many rows of a tile the axis fills: all where it is long, some where nobody knows."""
    number = arith.as_int(axis.extent)
    return tiles.MAX_ROWS // 2 if number is None else min(number, tiles.MAX_ROWS)


def _mentions(load: Load, axis: Axis) -> bool:
    return any(axis.var in index_vars(i) for i in load.indices)


def _has_lanes(stage: Stage, load: Load, lanes: Axis) -> bool:
    """Does the load differ from lane to lane? Not where it depends on the group of an output alone,
    lanes // size, and panels divide the groups: a tile is then inside one."""
    panel = panel_of(stage, lanes)
    return any(_differs(i, lanes, panel) for i in load.indices)


def _differs(index: arith.Expr, lanes: Axis, panel: int | None) -> bool:
    match index:
        case arith.FloorDiv(a=arith.Var(), b=arith.Const(value=size)) if panel:
            return _differs(index.a, lanes, None) and size % panel != 0
        case arith.Binary(a=a, b=b):
            return _differs(a, lanes, panel) or _differs(b, lanes, panel)
    return lanes.var in index_vars(index)


def _size(axis: Axis) -> int:
    number = arith.as_int(axis.extent)
    return tiles.UNKNOWN if number is None else number


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
    panel, lane_inner = sch.split(lane_loop, None, tile.columns)
    vectors, lanes = _lanes(sch, lane_inner, tile)
    inner = [*vectors, lanes]
    row_inner = None
    if row_loop is None or tile.rows == 1:
        outer += [panel] if row_loop is None else [panel, row_loop]
    else:
        row_tile, row_inner = sch.split(row_loop, None, tile.rows)
        inner.insert(0, row_inner)
        outer = _in_blocks(sch, [*outer, row_tile], panel, per_block)
    sch.reorder(*outer, *reduced, *inner)
    over_panels = _by_panel(sch, target, stage, roles, outer) if outer[0] == panel else None
    if over_panels is not None:
        shared, ride = over_panels, outer[1]
    else:
        shared = ride = sch.fuse(*outer) if len(outer) > 1 else outer[0]
    if consumer is not None:
        with sch.attempt():
            _ride(sch, target, consumer, ride)
    sch.vectorize(lanes)
    for loop in [*vectors, *([row_inner] if row_inner is not None else [])]:
        sch.unroll(loop)
    if tile.is_apart and (extent(sch, reduced[-1]) or MAX_UNROLL) < MAX_UNROLL:
        sch.unroll(reduced[-1])  # neighbours read the same vectors, a tap apart
    return shared


def _by_panel(
    sch: Schedule, target: Target, stage: Stage, roles: Roles, outer: list[LoopRef]
) -> LoopRef | None:
    """The loop over panels, each copied when its turn comes and still near when it is used; None
    where nothing is copied, or threads would have too few panels."""
    count = extent(sch, outer[0])
    copy = _panel_copy(sch, stage, roles.lanes)
    if copy is None or len(outer) != 2 or count is None or count < 4 * target.cores:
        return None
    with sch.attempt():
        sch.compute_at(copy, outer[0])
        write_out(sch, target, copy)
        return outer[0]
    return None


def _panel_copy(sch: Schedule, stage: Stage, lanes: Axis) -> BlockRef | None:
    """The map that makes a product's panels from parameters, if one does."""
    names = {x.buffer.name for x in stage.loads if _is_panelled(x, lanes)}
    makers = [s for s in stages(sch) if names & s.outputs]
    params = {p.name for p in sch.kernel.params}
    found = [s.ref for s in makers if s.is_map and {x.buffer.name for x in s.loads} <= params]
    return found[0] if len(found) == len(makers) == 1 else None


def _tile(target: Target, stage: Stage, roles: Roles) -> tiles.Tile:
    rows = 1 if roles.rows is None else arith.as_int(roles.rows.extent)
    columns = arith.as_int(roles.lanes.extent)
    lanes, panel = target.lanes(stage.dtype), panel_of(stage, roles.lanes)
    if panel is not None and panel % lanes:
        in_groups = any(
            _mentions(x, roles.lanes) and not _has_lanes(stage, x, roles.lanes) for x in stage.loads
        )
        fitting = tiles.even_lanes(panel, lanes) if in_groups else None
        lanes, panel = fitting or lanes, panel if fitting else None  # or not made for tiles
    if panel is None and columns is not None and columns < lanes:
        lanes = max(columns, 1)
    is_apart = roles.rows is not None and _are_apart(stage, roles.lanes, roles.rows)
    return tiles.register_tile(rows, columns, lanes, target.vector_registers, panel, is_apart)


def _are_apart(stage: Stage, lanes: Axis, rows: Axis) -> bool:
    """Does each row load vectors of its own?"""
    return any(_mentions(x, lanes) and _mentions(x, rows) for x in stage.loads)


def panel_of(stage: Stage, lanes: Axis) -> int | None:
    """The width of the panels that an operand is packed in along the lanes, if one is."""
    for load in stage.loads:
        match load.indices[-1:]:
            case (arith.Mod(a=arith.Var(name=name), b=arith.Const(value=width)),) if (
                name == lanes.var
            ):
                return width
    return None


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
        if not _has_lanes(stage, x, roles.lanes)
        for name in (index_vars(x.indices[-1]) if x.indices else ())
    }
    return sorted(stage.reduced, key=lambda a: a.var in last)


def _tiles_per_block(target: Target, stage: Stage, roles: Roles, tile: tiles.Tile) -> int | None:
    if roles.rows is None or tile.rows == 1:
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
    still = [x for x in stage.loads if not _has_lanes(stage, x, roles.lanes)]
    alone = {i.name for x in still for i in x.indices if isinstance(i, arith.Var)}
    return [a for a in stage.reduced if a.var in alone]


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


def write_out(sch: Schedule, target: Target, ref: BlockRef) -> None:
    """A map in vectors along its last loop, all its short loops unrolled."""
    loops = own_loops(sch, ref)
    if not loops:
        return
    made = vectorize_loop(sch, target, stage_of(sch, ref), loops[-1])
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

"""What the axes of a reduction are for: which has the lanes, which the rows of a tile.

Lanes run along the output's last axis; rows along an axis that the loads with lanes do not depend
on, so that a loaded vector is used for every row. In: a stage. Out: `Roles`, or None.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot import tiles
from ingot.arith import expr as arith
from ingot.arith.affine import coefficient
from ingot.loops import visit
from ingot.loops.ir import Axis, Load
from ingot.schedule.rules.stages import Stage, index_vars, plain_index, value_vars

PACK_ROWS = 24  # rows that pay for copying an operand into panels first


@dataclass(frozen=True)
class Roles:
    """What the spatial axes of a reduction are for."""

    lanes: Axis
    rows: Axis | None


def find_roles(stage: Stage, eager: bool) -> Roles | None:
    """Lanes along the last spatial axis, if some load is contiguous along it and none gathers."""
    spatial = [a for a in stage.spatial if a.extent != 1]
    loads = stage.loads
    if not spatial or not loads:
        return None
    lanes = spatial[-1]
    if any(_gathers(x, lanes) for x in loads):
        return None
    moving = [x for x in loads if has_lanes(stage, x, lanes)]
    runs = [is_contiguous(stage, x, lanes) or is_panelled(x, lanes) for x in moving]
    if not eager and not any(runs):
        return None
    return Roles(lanes, _rows_axis(spatial[:-1], loads, moving))


def is_product(stage: Stage) -> bool:
    """Does each element of some operand take part in many outputs?"""
    spatial = {a.var for a in stage.spatial if a.extent != 1}
    used = [{v for i in x.indices for v in index_vars(i)} for x in stage.loads]
    return len(used) > 1 and any(spatial - names for names in used)


def is_column_sum(stage: Stage) -> bool:
    """Is one array, in rows along the last axis, reduced to one row?"""
    if len(stage.loads) != 1 or any(a.extent != 1 for a in stage.spatial[:-1]):
        return False
    (load,) = stage.loads
    plain = all(isinstance(i, arith.Var | arith.Const) for i in load.indices)
    return plain and bool(stage.spatial) and is_contiguous(stage, load, stage.spatial[-1])


def is_dot(stage: Stage) -> bool:
    """Do all operands run along the summed axis, with too few rows to copy one into panels?"""
    last, roles = stage.reduced[-1], find_roles(stage, eager=True)
    if roles is not None and roles.rows is not None and size_of(roles.rows) >= PACK_ROWS:
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


def is_panelled(load: Load, axis: Axis) -> bool:
    last = load.indices[-1] if load.indices else None
    return isinstance(last, arith.Mod) and last.a == arith.Var(axis.var)


def _rows_axis(others: list[Axis], loads: list[Load], moving: list[Load]) -> Axis | None:
    """The axis along which a loaded vector is used again; else one along which a scalar is; else,
    of all that have lanes, the last along which one stays."""
    still = [x for x in loads if x not in moving]
    for group in (moving, still):
        free = [a for a in others if group and not any(mentions(x, a) for x in group)]
        if free:
            return max(free, key=lambda a: (_rows_of(a), size_of(a), others.index(a)))
    staying = [a for a in others if not all(mentions(x, a) for x in moving)]
    return staying[-1] if staying else None


def _rows_of(axis: Axis) -> int:
    """How many rows of a tile the axis fills: all where it is long, some where nobody knows."""
    number = arith.as_int(axis.extent)
    return tiles.MAX_ROWS // 2 if number is None else min(number, tiles.MAX_ROWS)


def mentions(load: Load, axis: Axis) -> bool:
    return any(axis.var in index_vars(i) for i in load.indices)


def has_lanes(stage: Stage, load: Load, lanes: Axis) -> bool:
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


def size_of(axis: Axis) -> int:
    number = arith.as_int(axis.extent)
    return tiles.UNKNOWN if number is None else number


def panel_of(stage: Stage, lanes: Axis) -> int | None:
    """The width of the panels that an operand is packed in along the lanes, if one is."""
    for load in stage.loads:
        match load.indices[-1:]:
            case (arith.Mod(a=arith.Var(name=name), b=arith.Const(value=width)),) if (
                name == lanes.var
            ):
                return width
    return None


def are_apart(stage: Stage, lanes: Axis, rows: Axis) -> bool:
    """Does each row load vectors of its own?"""
    return any(mentions(x, lanes) and mentions(x, rows) for x in stage.loads)

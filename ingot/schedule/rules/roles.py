"""The roles of a reduction's axes in a register tile: vector lanes and rows.

Lanes are along the output's last axis; rows along an axis that the vector loads do not depend on,
so that a loaded vector is used for every row. In: a block. Out: `Roles`, or None.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.arith.affine import coefficient
from ingot.cost import contraction as cost
from ingot.cost.gemm import MIN_ROWS_TO_PACK
from ingot.loops import visit
from ingot.loops.ir import Axis, Load
from ingot.schedule.rules.block_info import BlockInfo, index_vars, plain_index, value_vars
from ingot.support.stack import segmented


@dataclass(frozen=True)
class Roles:
    """The spatial axes of a reduction that become the lanes and the rows of a tile."""

    lanes: Axis
    rows: Axis | None


def find_roles(info: BlockInfo, eager: bool) -> Roles | None:
    """Lanes along the last spatial axis, if some load is contiguous along it and none gathers."""
    spatial = [a for a in info.spatial if a.extent != 1]
    loads = info.loads
    if not spatial or not loads:
        return None
    lanes = spatial[-1]
    if any(_gathers(x, lanes) for x in loads):
        return None
    vector_loads = [x for x in loads if varies_by_lane(info, x, lanes)]
    contiguous = [is_contiguous(info, x, lanes) or is_packed(x, lanes) for x in vector_loads]
    if not eager and not any(contiguous):
        return None
    return Roles(lanes, _rows_axis(spatial[:-1], loads, vector_loads))


def why_scalar(info: BlockInfo, eager: bool) -> str:
    """Why a reduction has no lanes: what `find_roles` found, or that each plan was refused."""
    spatial = [a for a in info.spatial if a.extent != 1]
    if not spatial or not info.loads:
        return f"one result: {min(info.outputs)} is updated by every iteration"
    gathered = [x.buffer.name for x in info.loads if _gathers(x, spatial[-1])]
    if gathered:
        return f"data-dependent index into {gathered[0]}"
    if find_roles(info, eager) is None:
        loads = [x for x in info.loads if varies_by_lane(info, x, spatial[-1])] or info.loads
        return f"strided access to {loads[0].buffer.name}"
    return "every plan was refused"


def is_contraction(info: BlockInfo) -> bool:
    """Is it a GEMM or convolution: is each element of some operand used by many outputs?"""
    spatial = {a.var for a in info.spatial if a.extent != 1}
    used = [{v for i in x.indices for v in index_vars(i)} for x in info.loads]
    return len(used) > 1 and any(spatial - names for names in used)


def is_column_reduction(info: BlockInfo) -> bool:
    """Is one array, contiguous along its last axis, reduced to one row?"""
    if len(info.loads) != 1 or any(a.extent != 1 for a in info.spatial[:-1]):
        return False
    (load,) = info.loads
    plain = all(isinstance(i, arith.Var | arith.Const) for i in load.indices)
    return plain and bool(info.spatial) and is_contiguous(info, load, info.spatial[-1])


def is_dot_product(info: BlockInfo) -> bool:
    """Are all operands contiguous along the reduce axis, with too few rows to pack one?"""
    last, roles = info.reduced[-1], find_roles(info, eager=True)
    if roles is not None and roles.rows is not None and size_of(roles.rows) >= MIN_ROWS_TO_PACK:
        return False
    return len(info.loads) > 1 and all(is_contiguous(info, x, last) for x in info.loads)


def _gathers(load: Load, axis: Axis) -> bool:
    inside = [v for i in load.indices for v in visit.opaque_values(i)]
    return any(axis.var in value_vars(v) for v in inside)


def is_contiguous(info: BlockInfo, load: Load, axis: Axis) -> bool:
    """Does the load have stride 1 along the axis?"""
    indices = [i for i, size in zip(load.indices, load.buffer.shape) if size != 1]
    if not indices:
        return False
    *outer, last = (plain_index(info.block, i) for i in indices)
    if any(axis.var in index_vars(i) for i in outer):
        return False
    stride = coefficient(last, axis.var)
    return stride is not None and arith.is_const(stride, 1)


def is_packed(load: Load, axis: Axis) -> bool:
    """Is the buffer packed in panels along the axis?"""
    last = load.indices[-1] if load.indices else None
    return isinstance(last, arith.Mod) and last.a == arith.Var(axis.var)


def _rows_axis(others: list[Axis], loads: list[Load], vector_loads: list[Load]) -> Axis | None:
    """The axis along which a loaded vector is reused; else one along which a scalar is; else the
    last axis that some vector load does not depend on."""
    scalar_loads = [x for x in loads if x not in vector_loads]
    for group in (vector_loads, scalar_loads):
        free = [a for a in others if group and not any(depends_on(x, a) for x in group)]
        if free:
            return max(free, key=lambda a: (_rows_filled(a), size_of(a), others.index(a)))
    reused = [a for a in others if not all(depends_on(x, a) for x in vector_loads)]
    return reused[-1] if reused else None


def _rows_filled(axis: Axis) -> int:
    """Rows of a tile that the axis fills; a dynamic dimension counts as half of the maximum."""
    number = arith.as_int(axis.extent)
    return cost.MAX_TILE_ROWS // 2 if number is None else min(number, cost.MAX_TILE_ROWS)


def depends_on(load: Load, axis: Axis) -> bool:
    return any(axis.var in index_vars(i) for i in load.indices)


def varies_by_lane(info: BlockInfo, load: Load, lanes: Axis) -> bool:
    """Does the load differ from lane to lane? Not if it depends only on the group of a grouped
    convolution, lanes // size, and the panel width divides the group: a tile is in one group."""
    panel = panel_width(info, lanes)
    return any(_index_varies(i, lanes, panel) for i in load.indices)


@segmented
def _index_varies(index: arith.Expr, lanes: Axis, panel: int | None) -> bool:
    match index:
        case arith.FloorDiv(a=arith.Var(), b=arith.Const(value=size)) if panel:
            return _index_varies(index.a, lanes, None) and size % panel != 0
        case arith.Binary(a=a, b=b):
            return _index_varies(a, lanes, panel) or _index_varies(b, lanes, panel)
    return lanes.var in index_vars(index)


def size_of(axis: Axis) -> int:
    """The extent; an assumed one for a dynamic dimension."""
    number = arith.as_int(axis.extent)
    return cost.ASSUMED_EXTENT if number is None else number


def panel_width(info: BlockInfo, lanes: Axis) -> int | None:
    """The panel width of an operand that is packed along the lanes, if there is one."""
    for load in info.loads:
        match load.indices[-1:]:
            case (arith.Mod(a=arith.Var(name=name), b=arith.Const(value=width)),) if (
                name == lanes.var
            ):
                return width
    return None


def is_depthwise(info: BlockInfo, lanes: Axis, rows: Axis) -> bool:
    """Does each row load its own vectors, without operand reuse, as in depthwise convolutions?"""
    return any(depends_on(x, lanes) and depends_on(x, rows) for x in info.loads)

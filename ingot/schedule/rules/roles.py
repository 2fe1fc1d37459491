"""Queries about a reduction: the axis of its vector lanes, what its loads do along an axis.

Lanes are along the output's last axis. Used by rules and by the decisions (schedule/decide).
"""

from __future__ import annotations

from collections.abc import Mapping

from ingot.arith import expr as arith
from ingot.arith.affine import coefficient
from ingot.loops import visit
from ingot.loops.ir import Axis, Load
from ingot.schedule.handles import LoopRef
from ingot.schedule.rules.block_info import (
    BlockInfo,
    index_vars,
    loop_of,
    plain_index,
    value_vars,
)
from ingot.schedule.schedule import Schedule
from ingot.support.stack import segmented

Panels = Mapping[str, int]  # packed buffers, with the width of their panels
UNPACKED: Panels = {}


def find_lanes(info: BlockInfo, eager: bool, panels: Panels = UNPACKED) -> Axis | None:
    """The last spatial axis, if some load is contiguous along it (or `eager`) and none gathers."""
    spatial = [a for a in info.spatial if a.extent != 1]
    if not spatial or not info.loads:
        return None
    lanes = spatial[-1]
    if any(_gathers(x, lanes) for x in info.loads):
        return None
    loads = vector_loads(info, lanes, panels)
    is_found = any(is_contiguous(info, x, lanes) or is_packed(x, lanes, panels) for x in loads)
    return lanes if eager or is_found else None


def why_scalar(info: BlockInfo, eager: bool) -> str:
    """Why a reduction has no lanes: what `find_lanes` found, or that each plan was refused."""
    spatial = [a for a in info.spatial if a.extent != 1]
    if not spatial or not info.loads:
        return f"one result: {min(info.outputs)} is updated by every iteration"
    gathered = [x.buffer.name for x in info.loads if _gathers(x, spatial[-1])]
    if gathered:
        return f"data-dependent index into {gathered[0]}"
    if find_lanes(info, eager) is None:
        loads = vector_loads(info, spatial[-1]) or info.loads
        return f"strided access to {loads[0].buffer.name}"
    return "every plan was refused"


def is_contraction(info: BlockInfo) -> bool:
    """Is it a GEMM or convolution: is each element of some operand used by many outputs?"""
    spatial = {a.var for a in info.spatial if a.extent != 1}
    used = [{v for i in x.indices for v in index_vars(i)} for x in info.loads]
    return len(used) > 1 and any(spatial - names for names in used)


def batch_loops(sch: Schedule, info: BlockInfo, loops: list[LoopRef]) -> list[LoopRef]:
    """Those of `loops` over a batch: iterations that share no operand."""
    if len(info.loads) < 2:
        return []
    axes = [a for a in info.spatial if all(depends_on(x, a) for x in info.loads)]
    return [x for x in (loop_of(sch, info, a) for a in axes) if x in loops]


def is_column_reduction(info: BlockInfo) -> bool:
    """Is one array, contiguous along its last axis, reduced to one row?"""
    if len(info.loads) != 1 or any(a.extent != 1 for a in info.spatial[:-1]):
        return False
    (load,) = info.loads
    plain = all(isinstance(i, arith.Var | arith.Const) for i in load.indices)
    return plain and bool(info.spatial) and is_contiguous(info, load, info.spatial[-1])


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


def depends_on(load: Load, axis: Axis) -> bool:
    return any(axis.var in index_vars(i) for i in load.indices)


def is_packed(load: Load, lanes: Axis, panels: Panels) -> bool:
    """Is it a load from panels, along the lanes? Not where merge_axes has found a single panel: its
    index is the axis itself, and the load is contiguous."""
    if load.buffer.name not in panels or not load.indices:
        return False
    *_, before, last = (arith.Const(0), *load.indices)
    if lanes.var in index_vars(before) and load.buffer.rank > 2:  # the last index is in a k-block
        return lanes.var not in index_vars(last)
    return last != arith.Var(lanes.var) and lanes.var in index_vars(last)


def panel_width(info: BlockInfo, lanes: Axis, panels: Panels) -> int | None:
    """The panel width of an operand that is packed along the lanes, if there is one."""
    found = (panels[x.buffer.name] for x in info.loads if is_packed(x, lanes, panels))
    return next(found, None)


def vector_loads(info: BlockInfo, lanes: Axis, panels: Panels = UNPACKED) -> list[Load]:
    """Loads that differ from lane to lane. One that depends only on the group of a grouped
    convolution, lanes // size, does not if the panel width divides the group: a tile is in one."""
    panel = panel_width(info, lanes, panels)
    return [x for x in info.loads if any(_index_varies(i, lanes, panel) for i in x.indices)]


@segmented
def _index_varies(index: arith.Expr, lanes: Axis, panel: int | None) -> bool:
    match index:
        case arith.FloorDiv(a=arith.Var(), b=arith.Const(value=size)) if panel:
            return _index_varies(index.a, lanes, None) and size % panel != 0
        case arith.Binary(a=a, b=b):
            return _index_varies(a, lanes, panel) or _index_varies(b, lanes, panel)
    return lanes.var in index_vars(index)


def is_depthwise(info: BlockInfo, lanes: Axis, rows: Axis) -> bool:
    """Does each row load its own vectors, without operand reuse, as in depthwise convolutions?"""
    return any(depends_on(x, lanes) and depends_on(x, rows) for x in info.loads)

"""Apply: packing of a GEMM's operand into panels, where the copy runs, panel prefetch.

    d0, d1, d2  →  d0, d2 // 16, d1, d2 % 16        (k is d1, lanes are d2, panels are 16 wide)

A register tile reads a panel contiguously, as in BLIS. Used by contraction.py and attention.py.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.cost.plan import ContractionPlan
from ingot.loops.ir import Axis, Load
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.block_info import (
    BlockInfo,
    block_info_of,
    block_infos,
    index_vars,
    intermediates,
)
from ingot.schedule.rules.elementwise import vectorize_and_unroll
from ingot.schedule.rules.roles import vector_loads
from ingot.schedule.schedule import Schedule
from ingot.support.errors import IngotError
from ingot.target import Target


def pack_operand(sch: Schedule, info: BlockInfo, plan: ContractionPlan) -> None:
    """Pack the operand that is loaded by vectors into panels, as the plan says."""
    assert plan.packing is not None
    lanes = _lanes(info, plan)
    operands = vector_loads(info, lanes)
    layout = panel_layout(info, lanes, operands[0], plan.packing.width) if operands else None
    if len(operands) != 1 or layout is None:
        raise IngotError("bad-schedule", "packing: the operand has no axes to pack")
    name = operands[0].buffer.name
    if name in intermediates(sch):
        sch.transform_layout(name, layout)
    elif _reads_part(info, operands[0]):  # of a cache the rows in use, of a fused QKV one of three
        copy = sch.reindex(info.ref, name)
        packed = block_info_of(sch, info.ref)
        made = block_info_of(sch, copy).outputs
        (load,) = [x for x in packed.loads if x.buffer.name in made]
        layout = panel_layout(packed, _lanes(packed, plan), load, plan.packing.width)
        assert layout is not None, "the copy is indexed by axes of the block"
        sch.transform_layout(load.buffer.name, layout)
    else:
        sch.cache_read(info.ref, name, layout=layout)


def _reads_part(info: BlockInfo, load: Load) -> bool:
    """Does an axis run over some elements of a longer static dimension?"""
    extents = {a.var: a.extent for a in info.block.axes}
    pairs = [(_axis_name(i), n) for i, n in zip(load.indices, load.buffer.shape)]
    read = [(extents.get(name), n) for name, n in pairs if name is not None]
    return any(n != size for size, n in read if size is not None and arith.as_int(n) is not None)


def _axis_name(index: arith.Expr) -> str | None:
    """The axis of an index that is one, or one plus a constant."""
    match index:
        case arith.Var(name=name) | arith.Add(a=arith.Var(name=name), b=arith.Const()):
            return name
    return None


def _panel_loads(info: BlockInfo, plan: ContractionPlan) -> list[Load]:
    """The loads from the operand whose panels are as wide as the plan says."""
    assert plan.packing is not None
    width, lanes = plan.packing.width, _lanes(info, plan).var
    panels = [x for x in info.loads if x.buffer.rank > 1 and lanes in index_vars(x.indices[-1])]
    return [x for x in panels if arith.is_const(x.buffer.shape[-1], width)]


def _lanes(info: BlockInfo, plan: ContractionPlan) -> Axis:
    assert plan.lanes is not None
    return info.block.axes[plan.lanes]


def panel_layout(info: BlockInfo, lanes: Axis, load: Load, width: int) -> str | None:
    """The index map d0, d1, d2 -> d0, d2 // 16, d1, d2 % 16: panels of lanes, the reduce axes
    inside them. None where an index is no axis, with or without an offset."""
    axes = {a.var: a for a in info.block.axes}
    if load.mask is not None:
        return None
    outer, summed, lane = [], [], ""
    for d, index in enumerate(load.indices):
        axis = axes.get(_axis_name(index) or "")
        if axis is None and arith.as_int(index) is None:
            return None
        if axis == lanes:
            lane = f"d{d}"
        elif axis is not None and axis in info.reduced:
            summed.append(f"d{d}")
        else:
            outer.append(f"d{d}")
    names = ", ".join(f"d{d}" for d in range(load.buffer.rank))
    indices = [*outer, f"{lane} // {width}", *summed, f"{lane} % {width}"]
    return f"{names} -> {', '.join(indices)}" if lane and summed else None


def pack_per_panel(
    sch: Schedule, target: Target, info: BlockInfo, plan: ContractionPlan, outer: list[LoopRef]
) -> tuple[LoopRef, LoopRef] | None:
    """Pack each panel inside the loop over panels, so that it is still in cache when tiles use it;
    that loop and the one inside. None where that is refused."""
    with sch.attempt(info.ref):
        panel, rows = outer
        copy = _panel_copy(sch, info, plan)
        sch.compute_at(copy, panel)
        vectorize_and_unroll(sch, target, copy)
        return panel, rows
    return None


def prefetch_next_panel(
    sch: Schedule, info: BlockInfo, plan: ContractionPlan, panel: LoopRef, k_outer: LoopRef
) -> None:
    """Each row tile of a panel prefetches an equal share of the next panel, a few cache lines per
    iteration of `k_outer`: else the first tile waits for memory and the others leave it idle."""
    with sch.attempt(info.ref):
        for load in _panel_loads(info, plan):
            sch.prefetch(k_outer, load.buffer.name, panel)


def _panel_copy(sch: Schedule, info: BlockInfo, plan: ContractionPlan) -> BlockRef:
    """The block that packs an operand of the GEMM."""
    names = {x.buffer.name for x in _panel_loads(info, plan)}
    found = [s.ref for s in block_infos(sch) if names & s.outputs and s.is_elementwise]
    if len(found) != 1:
        raise IngotError("bad-schedule", "packing: no element-wise block packs the operand")
    return found[0]

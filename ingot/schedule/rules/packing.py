"""Packing: when an operand of a GEMM is copied into panels, where the copy runs, panel prefetch.

    d0, d1, d2  →  d0, d2 // 16, d1, d2 % 16        (k is d1, lanes are d2, panels are 16 wide)

A register tile reads a panel contiguously, as in BLIS. Used by contraction.py and attention.py.
"""

from __future__ import annotations

import math

from ingot.arith import expr as arith
from ingot.cost import contraction as cost
from ingot.loops.ir import Axis, Load
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.block_info import BlockInfo, block_infos, extent, intermediates
from ingot.schedule.rules.elementwise import vectorize_and_unroll
from ingot.schedule.rules.roles import (
    MIN_ROWS_TO_PACK,
    Roles,
    is_contraction,
    is_packed,
    panel_width,
    size_of,
    varies_by_lane,
)
from ingot.schedule.schedule import Schedule
from ingot.support import knobs
from ingot.target import Target

MAX_ROW_TILES_TO_PREFETCH = 64  # heuristic: more row tiles per panel hide the memory latency
MAX_UNPACKED_COLUMNS = 64  # heuristic: dense rows of at most so many elements need no packing


def pack_operand(sch: Schedule, info: BlockInfo, roles: Roles, width: int) -> bool:
    """Pack the operand that is loaded by vectors into panels of `width` columns, if there are
    enough rows to use them; whether it was packed."""
    if roles.rows is None or panel_width(info, roles.lanes) is not None:
        return False
    if size_of(roles.rows) < MIN_ROWS_TO_PACK or not is_contraction(info):
        return False
    (operand, *others) = [x for x in info.loads if varies_by_lane(info, x, roles.lanes)]
    is_loaded_twice = any(x.buffer == operand.buffer and x != operand for x in info.loads)
    layout = _panel_layout(info, roles, operand, width)
    if others or is_loaded_twice or layout is None or _is_narrow(info, operand, roles.lanes, width):
        return False
    name = operand.buffer.name
    with sch.attempt():
        if name in intermediates(sch):
            sch.transform_layout(name, layout)
        else:
            sch.cache_read(info.ref, name, layout=layout)
        return True
    return False


def _is_narrow(info: BlockInfo, load: Load, lanes: Axis, width: int) -> bool:
    """Are its rows short and adjacent along k, so that the buffer is a sequence of panels?"""
    size = arith.as_int(load.buffer.shape[-1])
    summed = {arith.Var(a.var) for a in info.reduced}
    before = [i for i, n in zip(load.indices[:-1], load.buffer.shape) if n != 1]
    is_dense = not before or before[-1] in summed
    is_row = load.indices[-1] == arith.Var(lanes.var)
    if size is None or size > MAX_UNPACKED_COLUMNS:
        return False
    return is_row and is_dense and size % width == 0


def _panel_layout(info: BlockInfo, roles: Roles, load: Load, width: int) -> str | None:
    """The index map d0, d1, d2 -> d0, d2 // 16, d1, d2 % 16: panels of lanes, the reduce axes
    inside them. None where an index is not an axis."""
    axes = {a.var: a for a in info.block.axes}
    if load.mask is not None:
        return None
    outer, summed, lane = [], [], ""
    for d, index in enumerate(load.indices):
        axis = axes.get(index.name) if isinstance(index, arith.Var) else None
        if axis is None and arith.as_int(index) is None:
            return None
        if axis == roles.lanes:
            lane = f"d{d}"
        elif axis is not None and axis in info.reduced:
            summed.append(f"d{d}")
        else:
            outer.append(f"d{d}")
    names = ", ".join(f"d{d}" for d in range(load.buffer.rank))
    indices = [*outer, f"{lane} // {width}", *summed, f"{lane} % {width}"]
    return f"{names} -> {', '.join(indices)}" if lane and summed else None


def pack_per_panel(
    sch: Schedule, target: Target, info: BlockInfo, roles: Roles, outer: list[LoopRef]
) -> tuple[LoopRef, LoopRef] | None:
    """Pack each panel inside the loop over panels, so that it is still in cache when tiles use it;
    that loop and the one inside. None where nothing is packed, or there are too few panels for the
    threads."""
    count = extent(sch, outer[0])
    copy = _panel_copy(sch, info, roles.lanes)
    if copy is None or len(outer) != 2 or count is None or count < 4 * target.cores:
        return None
    with sch.attempt():
        sch.compute_at(copy, outer[0])
        vectorize_and_unroll(sch, target, copy)
        return outer[0], outer[1]
    return None


def split_for_prefetch(
    sch: Schedule, target: Target, info: BlockInfo, roles: Roles,
    over_rows: list[LoopRef], reduced: list[LoopRef],
) -> str | None:  # fmt: skip
    """The packed weights to prefetch, if they exceed the L2 cache and are used by few row tiles.
    The last k loop is then split, so that each outer iteration prefetches some cache lines."""
    operands = [x.buffer for x in info.loads if is_packed(x, roles.lanes)]
    params = {p.name for p in sch.kernel.params}
    if len(operands) != 1 or operands[0].name not in params:
        return None
    sizes = [extent(sch, x) for x in (*over_rows, *reduced)]
    if None in sizes or not knobs.current().prefetch or len(target.caches) < 2:
        return None
    total = arith.as_int(arith.product(list(operands[0].shape)))
    exceeds_l2 = total is not None and total * info.dtype.storage_bytes > target.caches[1]
    *times, depth = [n for n in sizes if n is not None]
    step = cost.prefetch_step(math.prod(times), depth)
    row_tiles = math.prod(times[: len(over_rows)])
    if not exceeds_l2 or not 1 < row_tiles <= MAX_ROW_TILES_TO_PREFETCH or step is None:
        return None
    reduced[-1:] = sch.split(reduced[-1], None, step)
    return operands[0].name


def prefetch_next_panel(sch: Schedule, panels: str, panel: LoopRef, k_outer: LoopRef) -> None:
    """Each row tile of a panel prefetches an equal share of the next panel, a few cache lines per
    iteration of `k_outer`: else the first tile waits for memory and the others leave it idle."""
    with sch.attempt():
        sch.prefetch(k_outer, panels, panel)


def _panel_copy(sch: Schedule, info: BlockInfo, lanes: Axis) -> BlockRef | None:
    """The block that packs an operand of the GEMM from parameters, if there is one."""
    names = {x.buffer.name for x in info.loads if is_packed(x, lanes)}
    producers = [s for s in block_infos(sch) if names & s.outputs]
    params = {p.name for p in sch.kernel.params}
    copies = [s for s in producers if {x.buffer.name for x in s.loads} <= params]
    found = [s.ref for s in copies if s.is_elementwise]
    return found[0] if len(found) == len(producers) == 1 else None

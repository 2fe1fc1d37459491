"""Operands in panels: when one is copied into them, where the copy stands, what is fetched early.

    d0, d1, d2  →  d0, d2 // 16, d1, d2 % 16

A tile goes down a panel from end to end. Used by the rules for products and attention.
"""

from __future__ import annotations

import math

from ingot import tiles
from ingot.arith import expr as arith
from ingot.loops.ir import Axis, Load
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.maps import write_out
from ingot.schedule.rules.roles import (
    PACK_ROWS,
    Roles,
    has_lanes,
    is_panelled,
    is_product,
    panel_of,
    size_of,
)
from ingot.schedule.rules.stages import Stage, extent, intermediates, stages
from ingot.schedule.schedule import Schedule
from ingot.support import knobs
from ingot.target import Target

MAX_FETCHING = 64  # tiles of rows: with more of them, memory has time enough
NARROW = 64  # elements of a row that need no packing


def pack_operand(sch: Schedule, stage: Stage, roles: Roles, width: int) -> bool:
    """Copy the operand with lanes into panels of a width, where enough rows use them; whether it
    was done."""
    if roles.rows is None or panel_of(stage, roles.lanes) is not None:
        return False
    if size_of(roles.rows) < PACK_ROWS or not is_product(stage):
        return False
    (operand, *others) = [x for x in stage.loads if has_lanes(stage, x, roles.lanes)]
    shared = any(x.buffer == operand.buffer and x != operand for x in stage.loads)
    order = _panel_order(stage, roles, operand)
    if others or shared or order is None or _is_narrow(stage, operand, roles.lanes, width):
        return False
    layout, name = order.format(width=width), operand.buffer.name
    with sch.attempt():
        if name in intermediates(sch):
            sch.transform_layout(name, layout)
        else:
            sch.cache_read(stage.ref, name, layout=layout)
        return True
    return False


def _is_narrow(stage: Stage, load: Load, lanes: Axis, width: int) -> bool:
    """Are its rows so short, and one after another, that they are as good as whole panels?"""
    size = arith.as_int(load.buffer.shape[-1])
    summed = {arith.Var(a.var) for a in stage.reduced}
    before = [i for i, n in zip(load.indices[:-1], load.buffer.shape) if n != 1]
    is_dense = not before or before[-1] in summed
    is_row = load.indices[-1] == arith.Var(lanes.var)
    return is_row and is_dense and size is not None and size <= NARROW and size % width == 0


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


def copy_by_panel(
    sch: Schedule, target: Target, stage: Stage, roles: Roles, outer: list[LoopRef]
) -> tuple[LoopRef, LoopRef] | None:
    """The loop over panels, each copied when its turn comes and still near when it is used, and the
    one inside; None where nothing is copied, or threads would have too few panels."""
    count = extent(sch, outer[0])
    copy = _panel_copy(sch, stage, roles.lanes)
    if copy is None or len(outer) != 2 or count is None or count < 4 * target.cores:
        return None
    with sch.attempt():
        sch.compute_at(copy, outer[0])
        write_out(sch, target, copy)
        return outer[0], outer[1]
    return None


def split_to_fetch(
    sch: Schedule, target: Target, stage: Stage, roles: Roles,
    over_rows: list[LoopRef], reduced: list[LoopRef],
) -> str | None:  # fmt: skip
    """The panels of weights that `fetch_ahead` is to name, if memory would be waited for; the last
    loop of the sum is split into steps then, each of which fetches some lines."""
    operands = [x.buffer for x in stage.loads if is_panelled(x, roles.lanes)]
    params = {p.name for p in sch.kernel.params}
    if len(operands) != 1 or operands[0].name not in params:
        return None
    sizes = [extent(sch, x) for x in (*over_rows, *reduced)]
    if None in sizes or not knobs.current().fetch_ahead or len(target.caches) < 2:
        return None
    total = arith.as_int(arith.product(list(operands[0].shape)))
    is_far = total is not None and total * stage.dtype.storage_bytes > target.caches[1]
    *times, depth = [n for n in sizes if n is not None]
    step = tiles.fetch_step(math.prod(times), depth)
    if not is_far or not 1 < math.prod(times[: len(over_rows)]) <= MAX_FETCHING or step is None:
        return None
    reduced[-1:] = sch.split(reduced[-1], None, step)
    return operands[0].name


def fetch_ahead(sch: Schedule, panels: str, panel: LoopRef, steps: LoopRef) -> None:
    """While tiles of rows use a panel of weights, each fetches a share of the next one, a few lines
    at a time: else the first tile waits for memory and the others leave it idle."""
    with sch.attempt():
        sch.prefetch(steps, panels, panel)


def _panel_copy(sch: Schedule, stage: Stage, lanes: Axis) -> BlockRef | None:
    """The map that makes a product's panels from parameters, if one does."""
    names = {x.buffer.name for x in stage.loads if is_panelled(x, lanes)}
    makers = [s for s in stages(sch) if names & s.outputs]
    params = {p.name for p in sch.kernel.params}
    found = [s.ref for s in makers if s.is_map and {x.buffer.name for x in s.loads} <= params]
    return found[0] if len(found) == len(makers) == 1 else None

"""The roles of a reduction's axes in a register tile: vector lanes and rows.

Lanes are along the output's last axis; rows along an axis that the vector loads do not depend on,
so that a loaded vector is used for every row. In: a block. Out: `Roles`, or None.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.cost import contraction as cost
from ingot.cost.gemm import MIN_ROWS_TO_PACK
from ingot.loops.ir import Axis, Load
from ingot.schedule.rules.block_info import BlockInfo
from ingot.schedule.rules.roles import (
    Panels,
    depends_on,
    find_lanes,
    is_contiguous,
    is_depthwise,
    vector_loads,
)
from ingot.schedule.schedule import Schedule


@dataclass(frozen=True)
class Roles:
    """The spatial axes of a reduction that become the lanes and the rows of a tile."""

    lanes: Axis
    rows: Axis | None


def find_roles(sch: Schedule, info: BlockInfo, panels: Panels) -> Roles | None:
    """None where no axis can be the lanes."""
    lanes = find_lanes(info, eager=True, panels=panels)
    if lanes is None:
        return None
    others = [a for a in info.spatial if a.extent != 1][:-1]
    return Roles(lanes, _rows_axis(sch, others, info.loads, vector_loads(info, lanes, panels)))


def likely_extent(sch: Schedule, axis: Axis) -> int | None:
    """The extent, or the likely one of a dynamic dimension."""
    likely = {size.name: size.likely for size in sch.kernel.sizes if size.likely is not None}
    return arith.assumed(axis.extent, likely)


def is_dot_product(sch: Schedule, info: BlockInfo, panels: Panels) -> bool:
    """Are all operands contiguous along the reduce axis, with too few rows to pack one?"""
    summed = [a for a in info.reduced if a.extent != 1] or info.reduced  # 1: a pointwise window
    last, roles = summed[-1], find_roles(sch, info, panels)
    rows = None if roles is None else roles.rows
    if roles is not None and rows is not None and is_depthwise(info, roles.lanes, rows):
        return False  # a window: neighbouring outputs share most of what they read
    if rows is not None and _size_of(sch, rows) >= MIN_ROWS_TO_PACK:
        return False
    return len(info.loads) > 1 and all(is_contiguous(info, x, last) for x in info.loads)


def _rows_axis(
    sch: Schedule, others: list[Axis], loads: list[Load], vectors: list[Load]
) -> Axis | None:
    """The axis along which a loaded vector is reused; else one along which a scalar is; else the
    last axis that some vector load does not depend on. Along a batch that is likely 1 no scalar is
    reused."""
    scalar_loads = [x for x in loads if x not in vectors]
    longer = [a for a in others if likely_extent(sch, a) != 1]
    for group, axes in ((vectors, others), (scalar_loads, longer)):
        free = [a for a in axes if group and not any(depends_on(x, a) for x in group)]
        if free:
            return max(
                free, key=lambda a: (_rows_filled(sch, a), _size_of(sch, a), others.index(a))
            )
    reused = [a for a in others if not all(depends_on(x, a) for x in vectors)]
    return reused[-1] if reused else None


def _rows_filled(sch: Schedule, axis: Axis) -> int:
    """Rows of a tile that the axis fills; a dynamic dimension of which nothing is known counts as
    half of the maximum."""
    number = likely_extent(sch, axis)
    return cost.MAX_TILE_ROWS // 2 if number is None else min(number, cost.MAX_TILE_ROWS)


def _size_of(sch: Schedule, axis: Axis) -> int:
    """The extent, or the likely one; else one that is assumed."""
    number = likely_extent(sch, axis)
    return cost.ASSUMED_EXTENT if number is None else number

"""Rule: the fallback of every family, for each nest that no other rule has scheduled.

Element-wise nests are vectorised and parallel, reductions are tiled, nests with ordered axes are
parallel over their outer spatial loops, opaque ones stay serial.
"""

from __future__ import annotations

from collections.abc import Collection

from ingot.loops.ir import SERIAL_LOOPS, AxisKind
from ingot.schedule.handles import BlockRef
from ingot.schedule.rules.base import Rules
from ingot.schedule.rules.block_info import BlockInfo, loop_of, own_loops, top_nests
from ingot.schedule.rules.elementwise import has_work, schedule_elementwise
from ingot.schedule.rules.point_blocks import is_point_block, schedule_point_block
from ingot.schedule.rules.reduction import schedule_reduction
from ingot.schedule.schedule import Schedule
from ingot.target import Target


def schedule_generic(
    sch: Schedule, target: Target, rules: Rules, done: Collection[BlockRef] = ()
) -> None:
    """Schedule every top-level nest of one block that is still serial, except those `done`."""
    seen = {ref.uid for ref in done}
    while todo := [s for s in top_nests(sch) if s.ref.uid not in seen]:
        # reductions first: their consumers are fused into their epilogues
        info = next((s for s in todo if s.is_reduction), todo[0])
        seen.add(info.ref.uid)
        if info.is_reduction:
            schedule_reduction(sch, target, info, rules, eager=False)
        elif info.is_elementwise:
            schedule_elementwise(sch, target, info)
        elif is_point_block(info):
            schedule_point_block(sch, target, info)
        else:
            _parallelize_outer(sch, info)


def _parallelize_outer(sch: Schedule, info: BlockInfo) -> None:
    """Parallelise the outer spatial loops of a nest whose other loops must run in order."""
    if any(a.kind is AxisKind.OPAQUE for a in info.block.axes) or not has_work(sch, info):
        return
    spatial = [loop_of(sch, info, a) for a in info.spatial]
    leading = []
    for loop in own_loops(sch, info.ref):
        if loop not in spatial:
            break
        leading.append(loop)
    if not leading:
        return
    with sch.attempt(info.ref, SERIAL_LOOPS):
        sch.parallel(sch.fuse(*leading) if len(leading) > 1 else leading[0])

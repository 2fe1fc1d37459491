"""Rule: whatever no family rule has touched, nest by nest. The generic fallback of every family.

Maps become parallel vectors, reductions are tiled, ordered nests share out their spatial loops,
opaque ones stay serial.
"""

from __future__ import annotations

from ingot.loops.ir import AxisKind
from ingot.schedule.rules.contraction import schedule_reduction
from ingot.schedule.rules.maps import has_work, schedule_map
from ingot.schedule.rules.stages import Stage, loop_of, own_loops, top_nests
from ingot.schedule.schedule import Schedule
from ingot.target import Target


def schedule_nests(sch: Schedule, target: Target) -> None:
    """Every nest that stands alone and is still serial."""
    done: set[int] = set()
    while todo := [s for s in top_nests(sch) if s.ref.uid not in done]:
        # reductions first: their consumers ride on their tiles
        stage = next((s for s in todo if s.is_reduction), todo[0])
        done.add(stage.ref.uid)
        if stage.is_reduction:
            schedule_reduction(sch, target, stage, eager=False)
        elif stage.is_map:
            schedule_map(sch, target, stage)
        else:
            _share(sch, stage)


def _share(sch: Schedule, stage: Stage) -> None:
    """Threads share the leading spatial loops of a nest that must otherwise run in order."""
    if any(a.kind is AxisKind.OPAQUE for a in stage.block.axes) or not has_work(sch, stage):
        return
    spatial = [loop_of(sch, stage, a) for a in stage.spatial]
    leading = []
    for loop in own_loops(sch, stage.ref):
        if loop not in spatial:
            break
        leading.append(loop)
    if not leading:
        return
    with sch.attempt():
        sch.parallel(sch.fuse(*leading) if len(leading) > 1 else leading[0])

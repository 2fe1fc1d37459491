"""Long sums of floats in parts: a part in registers, the total in memory next to it.

    for tile: for k_outer: for k_inner: part += …
                           total += part

One accumulator's rounding errors grow with the number of its terms. Added up in parts, those of n
terms are as those of one part and of n / part totals. Used by the rule for register tiles.
"""

from __future__ import annotations

from ingot import tiles
from ingot.schedule import reducers
from ingot.schedule.handles import LoopRef
from ingot.schedule.rules.maps import write_out
from ingot.schedule.rules.stages import Stage, extent
from ingot.schedule.schedule import Schedule
from ingot.support import knobs
from ingot.target import Target


def sum_in_parts(
    sch: Schedule, target: Target, stage: Stage, reduced: list[LoopRef]
) -> list[LoopRef]:
    """The loops of a sum, the first of them over its parts if it is long."""
    sizes = [extent(sch, loop) for loop in reduced]
    if not knobs.current().long_sums or None in sizes or not _adds_floats(stage):
        return reduced
    cut = tiles.parts_of_sum([n for n in sizes if n is not None])
    if cut is None:
        return reduced
    with sch.attempt():
        return _cut(sch, target, stage, reduced, *cut)
    return reduced


def _adds_floats(stage: Stage) -> bool:
    reducer = reducers.recognise(stage.block)
    return (
        isinstance(reducer, reducers.Reducer) and reducer.ops == ("add",) and stage.dtype.is_float
    )


def _cut(
    sch: Schedule, target: Target, stage: Stage, reduced: list[LoopRef], place: int, step: int
) -> list[LoopRef]:
    """Parts are all loops before the place and that one in steps."""
    before, inside = reduced[:place], reduced[place:]
    if step != extent(sch, inside[0]):
        outer, inner = sch.split(inside[0], None, step)
        before, inside = [*before, outer], [inner, *inside[1:]]
    parts = sch.fuse(*before) if len(before) > 1 else before[0]
    sch.rfactor(parts, within=True)
    write_out(sch, target, stage.ref)
    return [parts, *inside]

"""Family name → rule. Families not listed take the rule their stages suggest."""

from __future__ import annotations

from collections.abc import Callable

from ingot.schedule.rules.contraction import schedule_reduction
from ingot.schedule.rules.nests import schedule_nests
from ingot.schedule.rules.rows import schedule_rows
from ingot.schedule.rules.stages import Stage, index_vars, stages, top_nests
from ingot.schedule.schedule import Schedule
from ingot.target import Target

Rule = Callable[[Schedule, Target], None]


def contractions(sch: Schedule, target: Target) -> None:
    """matmul, conv: products in register tiles, vectors even where loads are strided."""
    for stage in [s for s in top_nests(sch) if s.is_reduction]:
        schedule_reduction(sch, target, stage, eager=_is_product(stage))
    schedule_nests(sch, target)


def rows(sch: Schedule, target: Target) -> None:
    """reduce, softmax, norm: whole rows under one loop."""
    schedule_rows(sch, target)
    schedule_nests(sch, target)


def suggested(sch: Schedule, target: Target) -> None:
    """By what the stages look like."""
    reductions = [s for s in stages(sch) if s.is_reduction]
    is_rows = bool(reductions) and not any(_is_product(s) for s in reductions)
    (rows if is_rows else contractions)(sch, target)


def _is_product(stage: Stage) -> bool:
    """Does each element of some operand take part in many outputs?"""
    spatial = {a.var for a in stage.spatial if a.extent != 1}
    used = [{v for i in x.indices for v in index_vars(i)} for x in stage.loads]
    return len(used) > 1 and any(spatial - names for names in used)


RULES: dict[str, Rule] = {
    "matmul": contractions,
    "conv": contractions,
    "pool": schedule_nests,
    "reduce": rows,
    "softmax": rows,
    "norm": rows,
    "elementwise": schedule_nests,
    "activation": schedule_nests,
    "movement": schedule_nests,
}

AS_WRITTEN = ("kernel",)  # a user's kernel, who has scheduled it or wants it as it is

"""Family name → rule. Families not listed take the rule their stages suggest."""

from __future__ import annotations

from collections.abc import Callable

from ingot.schedule.rules.attention import schedule_attention
from ingot.schedule.rules.contraction import schedule_column_sum, schedule_reduction
from ingot.schedule.rules.inline import inline_maps
from ingot.schedule.rules.nests import schedule_nests
from ingot.schedule.rules.roles import is_dot, is_product
from ingot.schedule.rules.rows import schedule_rows
from ingot.schedule.rules.stages import stages, top_nests
from ingot.schedule.rules.winograd import schedule_winograd
from ingot.schedule.schedule import Schedule
from ingot.target import Target

Rule = Callable[[Schedule, Target], None]


def contractions(sch: Schedule, target: Target) -> None:
    """matmul, conv: products in register tiles, vectors even where loads are strided."""
    reductions = [s for s in top_nests(sch) if s.is_reduction]
    if len(reductions) == 1 and is_dot(reductions[0]):
        rows(sch, target)  # each result is a sum along a row of its own
        return
    for stage in reductions:
        schedule_reduction(sch, target, stage, eager=is_product(stage))
    schedule_nests(sch, target)


def rows(sch: Schedule, target: Target) -> None:
    """reduce, softmax, norm: whole rows under one loop; all of them summed up by columns."""
    reductions = [s for s in top_nests(sch) if s.is_reduction]
    if len(reductions) != 1 or not schedule_column_sum(sch, target, reductions[0]):
        schedule_rows(sch, target)
    schedule_nests(sch, target)


def attention(sch: Schedule, target: Target) -> None:
    """Two products with rows between them: all in one nest; else each stage by what it is."""
    if schedule_attention(sch, target):
        schedule_nests(sch, target)
    else:
        inline_maps(sch)
        contractions(sch, target)


def winograd(sch: Schedule, target: Target) -> None:
    """3 × 3 convolutions by fewer products; what has other stages goes by what they are."""
    if not schedule_winograd(sch, target):
        inline_maps(sch)
        contractions(sch, target)


def suggested(sch: Schedule, target: Target) -> None:
    """By what the stages look like."""
    reductions = [s for s in stages(sch) if s.is_reduction]
    is_rows = bool(reductions) and not any(is_product(s) for s in reductions)
    (rows if is_rows else contractions)(sch, target)


RULES: dict[str, Rule] = {
    "matmul": contractions,
    "conv": contractions,
    "attention": attention,
    "winograd": winograd,
    "pool": schedule_nests,
    "reduce": rows,
    "softmax": rows,
    "norm": rows,
    "elementwise": schedule_nests,
    "activation": schedule_nests,
    "movement": schedule_nests,
}

AS_WRITTEN = ("kernel",)  # a user's kernel, who has scheduled it or wants it as it is
INLINE_THEMSELVES = ("attention", "winograd")  # some maps must stay stages of their own

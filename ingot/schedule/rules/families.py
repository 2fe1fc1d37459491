"""Plan and apply the structures that most families share: contractions, row reductions, generic.

Called through the rows of rules/table.py; attention and Winograd have files of their own.
"""

from __future__ import annotations

from ingot.cost.plan import ContractionPlan
from ingot.schedule.rules.base import Rules
from ingot.schedule.rules.block_info import BlockInfo, block_infos, top_nests
from ingot.schedule.rules.generic import schedule_generic
from ingot.schedule.rules.reduction import (
    plan_column_sum,
    plan_reduction,
    schedule_column_sum,
    schedule_reduction,
)
from ingot.schedule.rules.roles import is_contraction, is_dot_product
from ingot.schedule.rules.row_reduction import schedule_row_reductions
from ingot.schedule.schedule import Schedule
from ingot.target import Target

DOT = ContractionPlan("dot")  # each output is the dot product of two rows: a row reduction


def _reductions(sch: Schedule) -> list[BlockInfo]:
    return [s for s in top_nests(sch) if s.is_reduction]


def plan_contractions(sch: Schedule, target: Target, rules: Rules) -> None:
    """matmul, conv: GEMM and convolution in register tiles, vectorised even with strided loads."""
    found = _reductions(sch)
    if len(found) == 1 and is_dot_product(found[0]):
        sch.plans[found[0].block.name] = DOT
        return
    for info in found:
        eager = is_contraction(info)
        sch.plans[info.block.name] = plan_reduction(sch, target, info, rules, eager)


def apply_contractions(sch: Schedule, target: Target, rules: Rules) -> None:
    found = _reductions(sch)
    if len(found) == 1 and sch.plans.get(found[0].block.name) == DOT:
        apply_row_reductions(sch, target, rules)
        return
    for info in found:
        schedule_reduction(sch, target, info, rules, eager=is_contraction(info))
    schedule_generic(sch, target, rules, done=[info.ref for info in found])


def plan_row_reductions(sch: Schedule, target: Target, rules: Rules) -> None:
    """reduce, softmax, norm: one reduction over columns has a plan, rows have none."""
    found = _reductions(sch)
    plan = plan_column_sum(sch, target, found[0], rules) if len(found) == 1 else None
    if plan is not None:
        sch.plans[found[0].block.name] = plan


def apply_row_reductions(sch: Schedule, target: Target, rules: Rules) -> None:
    """All blocks of a row under one loop; or one reduction over columns."""
    found = _reductions(sch)
    if len(found) != 1 or not schedule_column_sum(sch, target, found[0], rules):
        schedule_row_reductions(sch, target)
    schedule_generic(sch, target, rules)


def plan_generic(sch: Schedule, target: Target, rules: Rules) -> None:
    for info in _reductions(sch):
        sch.plans[info.block.name] = plan_reduction(sch, target, info, rules, eager=False)


def plan_by_structure(sch: Schedule, target: Target, rules: Rules) -> None:
    plan = plan_row_reductions if has_only_row_reductions(sch) else plan_contractions
    plan(sch, target, rules)


def apply_by_structure(sch: Schedule, target: Target, rules: Rules) -> None:
    apply = apply_row_reductions if has_only_row_reductions(sch) else apply_contractions
    apply(sch, target, rules)


def has_only_row_reductions(sch: Schedule) -> bool:
    found = [s for s in block_infos(sch) if s.is_reduction]
    return bool(found) and not any(is_contraction(s) for s in found)

"""Apply the structures that most families share: contractions, row reductions, generic.

Called through the rows of schedule/table.py; attention and Winograd have files of their own.
schedule/decide/families.py makes their plans.
"""

from __future__ import annotations

from ingot.schedule.rules.base import Rules
from ingot.schedule.rules.block_info import BlockInfo, block_infos, top_nests
from ingot.schedule.rules.generic import schedule_generic
from ingot.schedule.rules.reduction import schedule_column_sum, schedule_reduction
from ingot.schedule.rules.roles import is_contraction
from ingot.schedule.rules.row_reduction import schedule_row_reductions
from ingot.schedule.rules.whole_reduction import is_whole_reduction, schedule_whole_reduction
from ingot.schedule.schedule import Schedule
from ingot.target import Target


def reductions(sch: Schedule) -> list[BlockInfo]:
    return [s for s in top_nests(sch) if s.is_reduction]


def apply_contractions(sch: Schedule, target: Target, rules: Rules) -> None:
    """matmul, conv: GEMM and convolution in register tiles, vectorised even with strided loads."""
    found = reductions(sch)
    plans = [sch.plans.get(info.block.name) for info in found]
    if [plan.algorithm for plan in plans if plan is not None] == ["dot"]:
        apply_row_reductions(sch, target, rules)
        return
    for info in found:
        schedule_reduction(sch, target, info, rules, eager=is_contraction(info))
    schedule_generic(sch, target, rules, done=[info.ref for info in found])


def apply_row_reductions(sch: Schedule, target: Target, rules: Rules) -> None:
    """reduce, softmax, norm: all blocks of a row under one loop; or one reduction over columns."""
    found, done = reductions(sch), []
    if len(found) == 1 and is_whole_reduction(found[0]):
        done = schedule_whole_reduction(sch, target, found[0])
    if done:
        pass
    elif len(found) != 1 or not schedule_column_sum(sch, target, found[0], rules):
        schedule_row_reductions(sch, target)
    schedule_generic(sch, target, rules, done)


def apply_by_structure(sch: Schedule, target: Target, rules: Rules) -> None:
    apply = apply_row_reductions if has_only_row_reductions(sch) else apply_contractions
    apply(sch, target, rules)


def has_only_row_reductions(sch: Schedule) -> bool:
    found = [s for s in block_infos(sch) if s.is_reduction]
    return bool(found) and not any(is_contraction(s) for s in found)

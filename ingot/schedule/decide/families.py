"""Plan the structures that most families share: contractions, row reductions, generic.

In: a prepared kernel. Out: plans in `sch.plans`. Called through the rows of schedule/table.py;
schedule/rules/families.py applies the plans.
"""

from __future__ import annotations

from dataclasses import replace

from ingot.cost.dot_products import DotRow, dot_rows
from ingot.cost.plan import PLAIN, ContractionPlan, preferred
from ingot.cost.shape import PARALLEL_WORK, Given
from ingot.schedule.decide.analysis import column_sum_of, contraction_of
from ingot.schedule.decide.roles import is_dot_product
from ingot.schedule.rules.base import Rules
from ingot.schedule.rules.block_info import BlockInfo, elements
from ingot.schedule.rules.families import has_only_row_reductions, reductions
from ingot.schedule.rules.roles import is_column_reduction, is_contraction
from ingot.schedule.rules.row_reduction import has_rows
from ingot.schedule.schedule import Schedule
from ingot.target import Target

DOT = ContractionPlan("dot")  # each output is the dot product of two rows: a row reduction


def plan_contractions(sch: Schedule, target: Target, rules: Rules, given: Given) -> None:
    """matmul, conv: vectorised even with strided loads; few dot products are row reductions."""
    found = reductions(sch)
    is_blocked = len(found) == 1 and k_block(found[0], given) is not None
    if len(found) == 1 and not is_blocked and is_dot_product(sch, found[0], dict(given.panels)):
        is_row = has_rows(sch)
        name = found[0].block.name
        sch.plans[name] = DOT if is_row else plan_reduction(sch, target, found[0], rules, given)
        return
    for info in found:
        eager = is_contraction(info)
        sch.plans[info.block.name] = plan_reduction(sch, target, info, rules, given, eager)


def plan_row_reductions(sch: Schedule, target: Target, rules: Rules, given: Given) -> None:
    """reduce, softmax, norm: one reduction over columns has a plan, those along rows have none."""
    found = reductions(sch)
    columns = plan_column_sum(sch, target, found[0], rules) if len(found) == 1 else []
    if not has_rows(sch):
        plan_generic(sch, target, rules, given)
    if columns:
        name = found[0].block.name
        others = sch.plans[name].choices if name in sch.plans else ()
        sch.plans[name] = preferred([*columns, *others])


def plan_generic(sch: Schedule, target: Target, rules: Rules, given: Given) -> None:
    """Each reduction in a register tile, if a load is contiguous along the lanes."""
    for info in reductions(sch):
        sch.plans[info.block.name] = plan_reduction(sch, target, info, rules, given)


def plan_by_structure(sch: Schedule, target: Target, rules: Rules, given: Given) -> None:
    plan = plan_row_reductions if has_only_row_reductions(sch) else plan_contractions
    plan(sch, target, rules, given)


def plan_reduction(
    sch: Schedule, target: Target, info: BlockInfo, rules: Rules, given: Given, eager: bool = False
) -> ContractionPlan:
    """The preferred plan and its alternatives. `eager` vectorises even where no load is
    contiguous."""
    shape = contraction_of(sch, info, eager, dict(given.panels))
    if shape is not None and (block := k_block(info, given)) is not None:
        shape = replace(shape, dot=dot_of(info, target, block, shape.operand.panel))
    if shape is not None and shape.rows is not None:
        shape = replace(shape, max_rows=given.max_rows)
    return preferred([*rules.decide(shape, target)] or [PLAIN])


def k_block(info: BlockInfo, given: Given) -> int | None:
    """The k-block of its packed operand, which is packed for a dot-product instruction."""
    blocks = dict(given.k_blocks)
    return next((blocks[x.buffer.name] for x in info.loads if x.buffer.name in blocks), None)


def dot_of(info: BlockInfo, target: Target, block: int, panel: int | None) -> DotRow | None:
    """The instruction for the operands' types that takes `block` terms and fills the panels."""
    if len(info.loads) != 2 or panel is None:
        return None
    rows = dot_rows(target, *(x.buffer.dtype for x in info.loads))
    return next((row for row in rows if row.group == block and panel % row.lanes == 0), None)


def plan_column_sum(
    sch: Schedule, target: Target, info: BlockInfo, rules: Rules
) -> list[ContractionPlan]:
    """The plan of one array that is reduced to one row, its rows split between threads."""
    count = elements(sch, info)
    is_big = count is None or count >= 2 * PARALLEL_WORK
    if not is_column_reduction(info) or not is_big:
        return []
    return rules.decide(column_sum_of(sch, info), target)[:1]

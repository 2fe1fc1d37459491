"""Plan attention's two GEMMs together; each alone is the alternative.

In: a kernel with two GEMMs, prepared by the rule (schedule/rules/attention.py). Out: plans.
"""

from __future__ import annotations

from ingot.cost.attention import decide_attention
from ingot.cost.plan import preferred
from ingot.cost.shape import Given
from ingot.schedule.decide.analysis import contraction_of
from ingot.schedule.decide.families import plan_reduction
from ingot.schedule.decide.roles import Roles
from ingot.schedule.rules.attention import gemms, row_and_lane_axes
from ingot.schedule.rules.base import Rules
from ingot.schedule.rules.block_info import block_info_of
from ingot.schedule.schedule import Schedule
from ingot.target import Target


def plan_attention(sch: Schedule, target: Target, rules: Rules, given: Given) -> None:
    infos, shapes = [block_info_of(sch, ref) for ref in gemms(sch)], []
    for info in infos:
        rows, lanes = row_and_lane_axes(info)
        shapes.append(contraction_of(sch, info, True, dict(given.panels), Roles(lanes, rows)))
    made = decide_attention([c for c in shapes if c is not None], target)
    for info, plan in zip(infos, made):
        alone = plan_reduction(sch, target, info, rules, given, eager=True)
        sch.plans[info.block.name] = preferred([plan, *alone.choices])

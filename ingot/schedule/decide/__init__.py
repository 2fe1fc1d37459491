"""Decide: the plans of a kernel's reductions, by the decisions of a table of rules.

    kernel ── prepare (inline) ── analysis.py: Contraction ── cost/<algorithm>.py ──► plans

In: a kernel as `lower` and merge_axes make it, a target, its family, the table, and what graph
passes have decided (panels of packed operands, blocks of Winograd tiles). Out: plans by
block. Nothing is scheduled. Called by backends/plan_contractions.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingot.arith import expr as arith
from ingot.cost.plan import ContractionPlan
from ingot.cost.shape import Given
from ingot.loops import visit
from ingot.loops.ir import AxisKind, Kernel
from ingot.schedule.rules import Rules, prepare
from ingot.schedule.schedule import Schedule
from ingot.target import Target

Plans = tuple[tuple[str, ContractionPlan], ...]


def plan_kernel(
    kernel: Kernel, target: Target, family: str, rules: Rules, given: Given | None = None
) -> Plans:
    """What its family's rule decides: block → plan. `given` is None where no graph made the
    kernel."""
    if family in rules.as_written or not _has_reduction(kernel):
        return ()
    sch, given = Schedule(kernel), given or Given(tuple(_panels_as_written(kernel)))
    for rule in rules.of(family):
        with sch.attempt():  # the rule refuses again where it is applied: a remark then
            prepare(sch, rule)
            rule.plan(sch, target, rules, given)
            break
    return tuple(sch.plans.items())


def _panels_as_written(kernel: Kernel) -> Iterator[tuple[str, int]]:
    """The packed parameters of a kernel from a user: its text has no layouts, so that only the
    index j % width of the lanes shows them."""
    params = {p.name for p in kernel.params}
    for load in (x for block in visit.blocks(kernel.body) for x in visit.loads(block.body)):
        match load.indices[-1:]:
            case (arith.Mod(a=arith.Var(), b=arith.Const(value=width)),) if (
                load.buffer.name in params
            ):
                yield load.buffer.name, width


def _has_reduction(kernel: Kernel) -> bool:
    axes = (a for block in visit.blocks(kernel.body) for a in block.axes)
    return any(a.kind is AxisKind.REDUCE for a in axes)


__all__ = ["Plans", "plan_kernel"]

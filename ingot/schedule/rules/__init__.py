"""The default schedules: kernel family → rule, each written with the public primitives only.

In: a kernel as `lower` made it, a target, the anchor's family, a table of rules. Out: a `Schedule`.
Called by the schedule stage of the pipeline. A kernel that carries plans is scheduled by them; for
another they are decided first. Rules depend on the target's features and on extents, never on CPU
names or known shapes.
"""

from __future__ import annotations

from functools import lru_cache

from ingot.cost.plan import ContractionPlan
from ingot.loops.ir import SCALAR_CODE, SERIAL_LOOPS, Kernel, Remark, replace
from ingot.schedule.rules.base import FamilyRule, Rules
from ingot.schedule.rules.explain import explain
from ingot.schedule.rules.table import CPU_RULES
from ingot.schedule.schedule import Saved, Schedule
from ingot.target import Target


def schedule_kernel(
    kernel: Kernel, target: Target, family: str | None, rules: Rules = CPU_RULES
) -> Schedule:
    """The kernel under its family's default schedule."""
    sch = Schedule(kernel)
    if family in rules.as_written:
        return sch
    for rule in rules.of(family or "") if sch.blocks() else ():
        with sch.attempt():
            _prepare(sch, rule)
            if not sch.plans:
                rule.plan(sch, target, rules)
            rule.apply(sch, target, rules)
            break
        sch.plans.clear()  # the next rule decides anew
    explain(sch)
    return sch


def plan_kernel(
    kernel: Kernel, target: Target, family: str, rules: Rules = CPU_RULES
) -> tuple[tuple[str, ContractionPlan], ...]:
    """What its family's rule decides: block → plan."""
    sch = Schedule(kernel)
    if family in rules.as_written or not sch.blocks():
        return ()
    for rule in rules.of(family):
        with sch.attempt():
            _prepare(sch, rule)
            rule.plan(sch, target, rules)
            break
    return tuple(sch.plans.items())


def _prepare(sch: Schedule, rule: FamilyRule) -> None:
    """Inline as the rule wants it: once for equal kernels, which are planned, then scheduled."""
    kernel, plans = sch.kernel, sch.plans
    saved, remarks = _prepared(rule, kernel)
    sch.restore(saved)
    kept = {field: getattr(kernel, field) for field in ("name", "origin", "family", "plans")}
    sch.kernel, sch.plans = replace(sch.kernel, **kept), plans
    sch.remarks += [r for r in remarks if r not in sch.remarks]


@lru_cache(maxsize=256)
def _prepared(rule: FamilyRule, kernel: Kernel) -> tuple[Saved, tuple[Remark, ...]]:
    sch = Schedule(kernel)
    rule.prepare(sch)
    return sch.save(), tuple(sch.remarks[len(kernel.remarks) :])


def schedule_minimal(kernel: Kernel, rules: Rules = CPU_RULES) -> Schedule:
    """The kernel as written, with its outermost loops parallel where that is legal."""
    sch = Schedule(kernel)
    for block in sch.blocks() if kernel.family not in rules.as_written else ():
        for outermost in sch.loops(block)[:1]:
            with sch.attempt(block):
                sch.parallel(outermost)
    for about in (SERIAL_LOOPS, SCALAR_CODE):
        sch.remark(None, about, "a minimal schedule: a compile-time limit was reached")
    return sch


__all__ = ["CPU_RULES", "Rules", "plan_kernel", "schedule_kernel", "schedule_minimal"]

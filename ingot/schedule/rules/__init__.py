"""The default schedules: kernel family → rule, each written with the public primitives only.

In: a kernel with its plans (schedule/decide), a target, the anchor's family, a table of rules. Out:
a `Schedule`. Called by the schedule stage. Rules apply plans and decide none: of cost/ they import
no more than the types of a plan. They depend on the target's features and on extents, never on CPU
names or known shapes.
"""

from __future__ import annotations

from functools import lru_cache

from ingot.loops.ir import SCALAR_CODE, SERIAL_LOOPS, Kernel, Remark, replace
from ingot.schedule.rules.base import FamilyRule, Rules
from ingot.schedule.rules.explain import explain
from ingot.schedule.schedule import Saved, Schedule
from ingot.target import Target


def apply_rules(kernel: Kernel, target: Target, family: str, rules: Rules) -> Schedule:
    """The kernel under its family's default schedule, by the plans that it carries."""
    sch = Schedule(kernel)
    if family in rules.as_written:
        return sch
    for rule in rules.of(family) if sch.blocks() else ():
        with sch.attempt():  # what the family's rule refuses is a remark on the kernel
            prepare(sch, rule)
            rule.apply(sch, target, rules)
            break
    sch.plans = {block: plan.choices[0] for block, plan in sch.plans.items()}
    explain(sch)
    return sch


def prepare(sch: Schedule, rule: FamilyRule) -> None:
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


def schedule_minimal(kernel: Kernel, rules: Rules) -> Schedule:
    """The kernel as written, with its outermost loops parallel where that is legal."""
    sch = Schedule(kernel)
    for block in sch.blocks() if kernel.family not in rules.as_written else ():
        for outermost in sch.loops(block)[:1]:
            with sch.attempt(block):
                sch.parallel(outermost)
    for about in (SERIAL_LOOPS, SCALAR_CODE):
        sch.remark(None, about, "a minimal schedule: a compile-time limit was reached")
    return sch


__all__ = ["Rules", "apply_rules", "prepare", "schedule_minimal"]

"""The default schedules: kernel family → rule, each written with the public primitives only.

In: a kernel as `lower` made it, a target, the anchor's family, a table of rules. Out: a `Schedule`.
Called by the schedule stage of the pipeline. A kernel that carries plans is scheduled by them; for
another they are decided first. Rules depend on the target's features and on extents, never on CPU
names or known shapes.
"""

from __future__ import annotations

from ingot.loops.ir import SCALAR_CODE, SERIAL_LOOPS, Kernel
from ingot.schedule.rules.base import Rules
from ingot.schedule.rules.explain import explain
from ingot.schedule.rules.table import CPU_RULES
from ingot.schedule.schedule import Schedule
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
            rule.prepare(sch)
            if not sch.plans:
                rule.plan(sch, target, rules)
            rule.apply(sch, target, rules)
            break
        sch.plans.clear()  # the next rule decides anew
    explain(sch)
    return sch


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


__all__ = ["CPU_RULES", "Rules", "schedule_kernel", "schedule_minimal"]

"""Plan and schedule one kernel outside of a program, by the CPU's rules unless others are given.

In: a kernel, a target, its family. Out: a `Schedule`. In a program, stages do the two (the back
end's plan_contractions and schedule).
"""

from __future__ import annotations

from ingot.loops.ir import Kernel, replace
from ingot.schedule.decide import plan_kernel
from ingot.schedule.rules import Rules, apply_rules
from ingot.schedule.schedule import Schedule
from ingot.schedule.table import CPU_RULES
from ingot.target import Target


def schedule_kernel(
    kernel: Kernel, target: Target, family: str | None, rules: Rules = CPU_RULES
) -> Schedule:
    """The kernel under its family's default schedule; plans are decided where it carries none."""
    plans = kernel.plans or plan_kernel(kernel, target, family or "", rules)
    return apply_rules(replace(kernel, plans=plans), target, family or "", rules)


__all__ = ["CPU_RULES", "schedule_kernel"]

"""The default schedules: kernel family → rule, each written with the public primitives only.

In: a kernel as `lower` made it, a target, the anchor's family. Out: a `Schedule`. Called by the
schedule stage of the pipeline. Rules depend on the target's features and on extents, never on CPU
names or known shapes.
"""

from __future__ import annotations

from ingot.loops.ir import Kernel
from ingot.schedule.rules.families import AS_WRITTEN, OWN_INLINING, RULES, by_structure
from ingot.schedule.rules.inline import inline_elementwise
from ingot.schedule.schedule import Schedule
from ingot.target import Target


def schedule_kernel(kernel: Kernel, target: Target, family: str | None) -> Schedule:
    """The kernel under its family's default schedule."""
    sch = Schedule(kernel)
    if family in AS_WRITTEN or not sch.blocks():
        return sch
    if family not in OWN_INLINING:
        inline_elementwise(sch)
    RULES.get(family or "", by_structure)(sch, target)
    return sch


def schedule_minimal(kernel: Kernel) -> Schedule:
    """The kernel as written, with its outermost loops parallel where that is legal."""
    sch = Schedule(kernel)
    for block in sch.blocks() if kernel.family not in AS_WRITTEN else ():
        for outermost in sch.loops(block)[:1]:
            with sch.attempt():
                sch.parallel(outermost)
    return sch


__all__ = ["schedule_kernel", "schedule_minimal"]

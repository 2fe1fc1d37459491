"""The default schedules: kernel family → rule, each written with the public primitives only."""

from __future__ import annotations

from ingot.loops.ir import Kernel
from ingot.schedule.schedule import Schedule
from ingot.target import Target


def schedule_kernel(kernel: Kernel, target: Target, family: str | None) -> Schedule:
    """The kernel under its family's default schedule."""
    return Schedule(kernel)

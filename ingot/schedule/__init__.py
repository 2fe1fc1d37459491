"""Schedules: transformations that make a kernel fast and preserve its semantics. Level 6."""

from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.instructions import instruction
from ingot.schedule.schedule import Schedule, replay
from ingot.schedule.trace import Trace
from ingot.schedule.widening import widening_dot

__all__ = ["BlockRef", "LoopRef", "Schedule", "Trace", "instruction", "replay", "widening_dot"]

"""A kernel's scratch layout: re-exported from loops/frame.py, for printers and planners."""

from ingot.loops.frame import Scratch, scratch_layout

__all__ = ["Scratch", "scratch_layout"]

"""A kernel's scratch memory: printers and planners share it, in loops/frame.py."""

from ingot.loops.frame import Scratch, scratch_layout

__all__ = ["Scratch", "scratch_layout"]

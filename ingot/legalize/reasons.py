"""A kernel's error reasons: printers and planners share them, in loops/frame.py."""

from ingot.loops.frame import reasons

__all__ = ["reasons"]

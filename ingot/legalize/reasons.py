"""A kernel's failure reasons: re-exported from loops/frame.py, for printers and planners."""

from ingot.loops.frame import reasons

__all__ = ["reasons"]

"""Loops → loops that a printer can print one to one. See docs/legalize.md."""

from ingot.legalize.steps import STEPS, legalize_kernel

__all__ = ["STEPS", "legalize_kernel"]

"""Loops → loops that a printer can print one to one. See docs/legalize.md."""

from ingot.legalize.passes import PASSES, legalize_kernel

__all__ = ["PASSES", "legalize_kernel"]

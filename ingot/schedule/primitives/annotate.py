"""annotate: a note on a loop or block for later stages; the last note of a key stays."""

from __future__ import annotations

from typing import Any

from ingot.loops import ir
from ingot.loops.ir import Block, For, Kernel
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import Result, insist, put

MAX_STEPS = 64  # that are written out at once


def annotate(kernel: Kernel, node: For | Block, key: str, value: Any) -> Result:
    if not isinstance(value, str | int | float | bool | None):
        why = f"{type(value).__name__} does not serialise"
        hint = "a string, a number, a bool or None"
        insist(kernel, node, f"annotate({key!r}, {value!r})", Problem(why, hint))
    if key == ir.STEPS and not (type(value) is int and 1 <= value <= MAX_STEPS):
        problem = Problem(f"{value!r} is no number of steps", f"a number from 1 to {MAX_STEPS}")
        insist(kernel, node, f"annotate({key!r}, {value!r})", problem)
    notes = {**dict(node.annotations), key: value}
    return put(kernel, node, ir.replace(node, annotations=tuple(sorted(notes.items())))), []

"""annotate: set an annotation of a loop or block for later stages; a key has one value."""

from __future__ import annotations

from typing import Any

from ingot.loops import ir
from ingot.loops.ir import Block, For, Kernel
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import Result, put, raise_if

MAX_UNROLL_FACTOR = 64  # iterations of k_unroll; heuristic


def annotate(kernel: Kernel, node: For | Block, key: str, value: Any) -> Result:
    if not isinstance(value, str | int | float | bool | None):
        why = f"{type(value).__name__} does not serialise"
        hint = "a string, a number, a bool or None"
        raise_if(kernel, node, f"annotate({key!r}, {value!r})", Problem(why, hint))
    if key == ir.K_UNROLL and not (type(value) is int and 1 <= value <= MAX_UNROLL_FACTOR):
        why = f"{value!r} is not a valid unroll factor"
        hint = f"an integer from 1 to {MAX_UNROLL_FACTOR}"
        raise_if(kernel, node, f"annotate({key!r}, {value!r})", Problem(why, hint))
    annotations = tuple(sorted({**dict(node.annotations), key: value}.items()))
    return put(kernel, node, ir.replace(node, annotations=annotations)), []

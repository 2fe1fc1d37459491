"""Scheduled kernel → kernel that a printer prints one to one. Called by pipeline and back ends.

Every step takes and gives a whole kernel that verifies and runs in the interpreter. Indices are
flattened before vectors are made, because a stride is only seen in the flat index; copies are made
last, so that each statement is widened and expanded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ingot.legalize.context import Context
from ingot.legalize.contract_fma import contract_fma
from ingot.legalize.expand_calls import expand_calls
from ingot.legalize.expand_math import expand_math
from ingot.legalize.flatten import flatten
from ingot.legalize.lower_blocks import lower_blocks
from ingot.legalize.outer_parallel import outer_parallel
from ingot.legalize.place_allocs import place_allocs
from ingot.legalize.simplify_stmts import simplify_stmts
from ingot.legalize.transpose_tiles import transpose_tiles
from ingot.legalize.unroll import unroll
from ingot.legalize.vectorize import vectorize
from ingot.legalize.whole_tiles import whole_tiles
from ingot.loops.ir import Kernel
from ingot.target import Target


class Step(NamedTuple):
    name: str
    function: Callable[[Kernel, Context], Kernel]


STEPS = (
    Step("outer_parallel", outer_parallel),
    Step("expand_calls", expand_calls),
    Step("lower_blocks", lower_blocks),
    Step("place_allocs", place_allocs),
    Step("flatten", flatten),
    Step("whole_tiles", whole_tiles),
    Step("vectorize", vectorize),
    Step("transpose_tiles", transpose_tiles),
    Step("contract_fma", contract_fma),
    Step("expand_math", expand_math),
    Step("unroll", unroll),
    Step("simplify_stmts", simplify_stmts),
)


def legalize_kernel(kernel: Kernel, target: Target, notes: list[str] | None = None) -> Kernel:
    """All steps in order; what stays slow and why is appended to `notes`."""
    ctx = Context.of(kernel, target)
    for step in STEPS:
        kernel = step.function(kernel, ctx)
    if notes is not None:
        notes.extend(ctx.notes)
    return kernel

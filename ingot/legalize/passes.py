"""Scheduled kernel → kernel that a printer prints one to one. Called by legalize/program.py.

Every pass maps a whole kernel to one that verifies and runs in the interpreter. `flatten` comes
before `vectorize`, because only the flat index shows a stride; `unroll` comes late, so that each
statement is vectorised and expanded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ingot.legalize.capacity import check_capacities
from ingot.legalize.context import PassContext
from ingot.legalize.contract_fma import contract_fma
from ingot.legalize.deinterleave import deinterleave
from ingot.legalize.expand_calls import expand_calls
from ingot.legalize.expand_math import expand_math
from ingot.legalize.flatten import flatten
from ingot.legalize.hoist_guards import hoist_guards
from ingot.legalize.lower_blocks import lower_blocks
from ingot.legalize.outer_parallel import outer_parallel
from ingot.legalize.place_allocs import place_allocs
from ingot.legalize.simplify_stmts import simplify_stmts
from ingot.legalize.skip_zero_terms import skip_zero_terms
from ingot.legalize.transpose_tiles import transpose_tiles
from ingot.legalize.unroll import unroll
from ingot.legalize.vectorize import vectorize
from ingot.legalize.whole_tiles import whole_tiles
from ingot.loops.ir import Kernel, replace
from ingot.target import Target


class Pass(NamedTuple):
    name: str
    function: Callable[[Kernel, PassContext], Kernel]


PASSES = (
    Pass("outer_parallel", outer_parallel),
    Pass("expand_calls", expand_calls),
    Pass("lower_blocks", lower_blocks),
    Pass("place_allocs", place_allocs),
    Pass("flatten", flatten),
    Pass("skip_zero_terms", skip_zero_terms),
    Pass("hoist_guards", hoist_guards),
    Pass("whole_tiles", whole_tiles),
    Pass("vectorize", vectorize),
    Pass("transpose_tiles", transpose_tiles),
    Pass("deinterleave", deinterleave),
    Pass("contract_fma", contract_fma),
    Pass("expand_math", expand_math),
    Pass("unroll", unroll),
    Pass("simplify_stmts", simplify_stmts),
)


def legalize_kernel(kernel: Kernel, target: Target, passes: Sequence[Pass] = PASSES) -> Kernel:
    """Run the passes in order; loops left serial or scalar are remarks on the kernel."""
    ctx = PassContext.of(kernel, target)
    for each in passes:
        kernel = each.function(kernel, ctx)
    check_capacities(kernel, target)
    return replace(kernel, remarks=(*kernel.remarks, *dict.fromkeys(ctx.remarks)))

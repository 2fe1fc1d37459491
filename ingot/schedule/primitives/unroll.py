"""unroll: unroll a loop completely.

    for i in range(4): B(i)   →   the same   [unroll]

Always legal; the extent must be a constant.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import ir
from ingot.loops.ir import For, Kernel, LoopKind
from ingot.schedule import checks
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import Result, put, raise_if

MAX_COPIES = 256  # iterations of an unrolled loop, against code size; heuristic


def unroll(kernel: Kernel, loop: For) -> Result:
    what = f"unroll({loop.var})"
    raise_if(kernel, loop, what, checks.expect_serial(loop) or _not_copies(loop))
    return put(kernel, loop, ir.replace(loop, kind=LoopKind.UNROLL)), []


def _not_copies(loop: For) -> Problem | None:
    copies = arith.as_int(loop.extent)
    if copies is None:
        return Problem(f"its extent {loop.extent} is dynamic", "split it: split(i, None, 4)")
    if copies > MAX_COPIES:
        return Problem(f"its extent {copies} is too large", f"split it; at most {MAX_COPIES}")
    return None

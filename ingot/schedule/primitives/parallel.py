"""parallel: a loop's iterations run in parallel on threads.

    for i in range(64): …   →   for i in range(64): …   [parallel]

Legal when the iterations are proved independent: the loop feeds spatial axes only, and every
iteration writes distinct elements, or a private intermediate that it writes before it reads it. No
parallel loop inside another.
"""

from __future__ import annotations

from ingot.loops import dependences, ir, visit
from ingot.loops.ir import For, Kernel, LoopKind
from ingot.schedule import checks, tree
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import Result, put, raise_if


def parallel(kernel: Kernel, loop: For) -> Result:
    what = f"parallel({loop.var})"
    raise_if(kernel, loop, what, checks.expect_serial(loop) or _nested(kernel, loop))
    raise_if(kernel, loop, what, checks.independent(kernel, loop, private=True))
    raise_if(kernel, loop, what, escapes(kernel, loop))
    return put(kernel, loop, ir.replace(loop, kind=LoopKind.PARALLEL)), []


def _nested(kernel: Kernel, loop: For) -> Problem | None:
    inside = [s for s in visit.walk_stmts(loop.body) if isinstance(s, For)]
    for other in tree.loops_above(kernel.body, loop) + inside:
        if other.kind is not LoopKind.SERIAL and other not in inside:
            why = f"it is inside {other.var}, which is {other.kind.value}"
            return Problem(why, "fuse the two loops, then parallel")
        if other.kind in (LoopKind.PARALLEL, LoopKind.BOUND):
            why = f"{other.var} inside it is {other.kind.value} already"
            return Problem(why, "fuse the two loops")
    return None


def escapes(kernel: Kernel, loop: For) -> Problem | None:
    """Why a thread-local (or block-shared) buffer is accessed both inside and outside the loop."""
    kept = (ir.GLOBAL, ir.SHARED) if loop.tag.startswith("threadIdx") else (ir.GLOBAL,)
    inside = {b.uid for b in dependences.top_blocks(loop.body)}
    for s in visit.walk_stmts(kernel.body):
        if not isinstance(s, ir.Alloc) or s.buffer.scope in kept:
            continue
        name = s.buffer.name
        users = {b.uid for b in dependences.readers(kernel.body, name)}
        users |= {b.uid for b in dependences.writers(kernel.body, name)}
        if users & inside and users - inside:
            why = (
                f"{name} is in scope {s.buffer.scope}, but is accessed inside and outside the loop"
            )
            return Problem(why, f"leave {name} in scope {ir.GLOBAL}")
    return None

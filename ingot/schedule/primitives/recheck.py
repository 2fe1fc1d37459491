"""After blocks have moved: check again that parallel, vector and bound loops are independent.

Called by the primitives that move blocks, on their result, before it becomes the kernel.
"""

from __future__ import annotations

from ingot.loops import visit
from ingot.loops.ir import For, Kernel, LoopKind, Stmt
from ingot.schedule import checks
from ingot.schedule.primitives.base import raise_if


def recheck(before: Kernel, after: Kernel, step: str) -> None:
    old = _loops_to_check(before.body)
    for loop in _loops_to_check(after.body).values():
        if loop.uid in old and old[loop.uid] is not loop:
            private = loop.kind is not LoopKind.VECTOR
            raise_if(after, loop, step, checks.independent(after, loop, private))


def _loops_to_check(root: Stmt) -> dict[int, For]:
    kinds = (LoopKind.PARALLEL, LoopKind.VECTOR, LoopKind.BOUND)
    loops = (s for s in visit.walk_stmts(root) if isinstance(s, For))
    return {x.uid: x for x in loops if x.kind in kinds}

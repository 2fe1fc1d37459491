"""After blocks have moved: loops marked parallel, vector or bound must still deserve it.

Called by the primitives that move blocks, on their result, before it becomes the kernel.
"""

from __future__ import annotations

from ingot.loops import visit
from ingot.loops.ir import For, Kernel, LoopKind, Stmt
from ingot.schedule import checks
from ingot.schedule.primitives.base import insist


def recheck(before: Kernel, after: Kernel, step: str) -> None:
    old = _marked(before.body)
    for loop in _marked(after.body).values():
        if loop.uid in old and old[loop.uid] is not loop:
            private = loop.kind is not LoopKind.VECTOR
            insist(after, loop, step, checks.independent(after, loop, private))


def _marked(root: Stmt) -> dict[int, For]:
    marks = (LoopKind.PARALLEL, LoopKind.VECTOR, LoopKind.BOUND)
    loops = (s for s in visit.walk_stmts(root) if isinstance(s, For))
    return {x.uid: x for x in loops if x.kind in marks}

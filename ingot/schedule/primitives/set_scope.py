"""set_scope: put an intermediate buffer into a memory scope.

    Y: f32[6, 16] in global   →   set_scope("Y", "thread")   →   Y: f32[6, 16] in thread

Legal for intermediates. A scope other than global belongs to one thread: where a parallel loop
touches the buffer, nothing outside that loop may.
"""

from __future__ import annotations

from ingot.loops import ir, visit
from ingot.loops.ir import Block, For, Kernel, LoopKind
from ingot.schedule import access, tree
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import Result, insist, with_body
from ingot.schedule.primitives.parallel import escapes
from ingot.schedule.show import refuse


def set_scope(kernel: Kernel, what: Block | str, scope: str) -> Result:
    name = what if isinstance(what, str) else _output(kernel, what)
    step = f"set_scope({name!r}, {scope!r})"
    alloc = tree.allocated(kernel.body, name)
    if alloc is None:
        why = f"{name} is not an intermediate of this kernel; parameters are global"
        raise refuse(kernel.body, None, step, why, "name a buffer that the kernel allocates")
    buffer = ir.replace(alloc.buffer, scope=scope)
    new = with_body(kernel, visit.replace_buffers(kernel.body, {name: buffer}))
    for s in visit.walk_stmts(new.body):
        if isinstance(s, For) and s.kind in (LoopKind.PARALLEL, LoopKind.BOUND):
            insist(new, s, step, escapes(new, s))
    return new, []


def _output(kernel: Kernel, block: Block) -> str:
    names = sorted({a.buffer.name for a in access.writes(block)})
    if len(names) != 1:
        why = f"block {block.name} writes {', '.join(names) or 'nothing'}"
        insist(kernel, block, "set_scope", Problem(why, "name the buffer instead"))
    return names[0]

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
from ingot.schedule.primitives.base import Result, raise_if, with_body
from ingot.schedule.primitives.parallel import escapes
from ingot.schedule.show import buffer_error


def set_scope(kernel: Kernel, what: Block | str, scope: str) -> Result:
    name = what if isinstance(what, str) else output(kernel, what, "set_scope")
    step = f"set_scope({name!r}, {scope!r})"
    buffer = ir.replace(intermediate(kernel, name, step), scope=scope)
    new = with_body(kernel, visit.replace_buffers(kernel.body, {name: buffer}))
    check_scopes(new, step)
    return new, []


def intermediate(kernel: Kernel, name: str, step: str) -> ir.Buffer:
    """The buffer of that name, which the kernel allocates."""
    alloc = tree.allocated(kernel.body, name)
    if alloc is None:
        why = f"{name} is not an intermediate of this kernel; parameters are global"
        names = [s.buffer.name for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.Alloc)]
        hint = f"one of {', '.join(names)}" if names else "cache_read or cache_write makes one"
        raise buffer_error(kernel, None, step, why, hint)
    return alloc.buffer


def check_scopes(kernel: Kernel, step: str) -> None:
    """Thread-local memory must not be accessed both inside and outside a parallel or bound loop."""
    for s in visit.walk_stmts(kernel.body):
        if isinstance(s, For) and s.kind in (LoopKind.PARALLEL, LoopKind.BOUND):
            raise_if(kernel, s, step, escapes(kernel, s))


def output(kernel: Kernel, block: Block, step: str) -> str:
    """The one buffer that the block writes."""
    names = sorted({a.buffer.name for a in access.writes(block)})
    if len(names) != 1:
        why = f"block {block.name} writes {', '.join(names) or 'nothing'}"
        raise_if(kernel, block, step, Problem(why, "name the buffer instead"))
    return names[0]

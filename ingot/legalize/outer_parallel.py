"""Only the outermost loop may be shared out to threads; other parallel loops run in order. A step.

A launch splits one loop, the one that is the kernel's whole body, and counts from zero. A parallel
loop anywhere else was wished for in vain, and the report says so; so was a loop bound to a GPU
index on a target that has none.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.legalize.context import Context
from ingot.loops import ir, visit
from ingot.loops.ir import For, Kernel, LoopKind, Stmt


def outer_parallel(kernel: Kernel, ctx: Context) -> Kernel:
    outer = kernel.body
    while isinstance(outer, ir.Alloc):  # allocations are placed later, within the loop if they may
        outer = outer.body

    def on_stmt(s: Stmt) -> Stmt:
        if not isinstance(s, For):
            return s
        if s.kind is LoopKind.BOUND and not has_indices:
            return _unbound(s, ctx, kernel.name)
        if s.kind is not LoopKind.PARALLEL:
            return s
        if s.uid not in kept:
            return as_serial(s, ctx, kernel.name, "it is not the outermost loop")
        return _from_zero(s)

    has_indices = any(memory.scope == ir.SHARED for memory in ctx.target.memories)
    kept = {outer.uid} if isinstance(outer, For) else set()
    return ir.replace(kernel, body=visit.map_stmt(kernel.body, on_stmt))


def _unbound(loop: For, ctx: Context, where: str) -> For:
    ctx.notes.append(f"{where}: the loop {loop.var} runs in order: there is no {loop.tag} here")
    return ir.replace(loop, kind=LoopKind.SERIAL, tag="")


def _from_zero(loop: For) -> For:
    if arith.is_const(loop.start, 0):
        return loop
    body = visit.substitute(loop.body, {loop.var: loop.start + arith.Var(loop.var)})
    return ir.replace(loop, start=arith.Const(0), stop=loop.extent, body=body)


def as_serial(loop: For, ctx: Context, where: str, why: str) -> For:
    ctx.notes.append(f"{where}: the parallel loop {loop.var} runs on one thread: {why}")
    return ir.replace(loop, kind=LoopKind.SERIAL)

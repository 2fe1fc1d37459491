"""Only the outermost loop may be parallel; other parallel loops become serial. A legalize pass.

A launch splits one loop, the kernel's outermost, which starts at zero. Any other parallel loop runs
serially, and a remark reports it. The same goes for a loop bound to a GPU thread index on a target
without one.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.legalize.context import PassContext
from ingot.loops import ir, visit
from ingot.loops.ir import For, Kernel, LoopKind, Stmt


def outer_parallel(kernel: Kernel, ctx: PassContext) -> Kernel:
    outer = kernel.body
    while isinstance(outer, ir.Alloc):  # place_allocs sinks them into the loop later, if it can
        outer = outer.body

    def on_stmt(s: Stmt) -> Stmt:
        if not isinstance(s, For):
            return s
        if s.kind is LoopKind.BOUND and not has_threads:
            return _unbound(s, ctx)
        if s.kind is not LoopKind.PARALLEL:
            return s
        if s.uid not in kept:
            return _as_serial(s, ctx, "it is not the outermost loop")
        return _normalized(s)

    has_threads = any(memory.scope == ir.SHARED for memory in ctx.target.memories)
    kept = {outer.uid} if isinstance(outer, For) else set()
    return ir.replace(kernel, body=visit.map_stmt(kernel.body, on_stmt))


def _unbound(loop: For, ctx: PassContext) -> For:
    ctx.remark(ir.SERIAL_LOOPS, f"the target has no {loop.tag} for the loop {loop.var}")
    return ir.replace(loop, kind=LoopKind.SERIAL, tag="")


def _normalized(loop: For) -> For:
    if arith.is_const(loop.start, 0):
        return loop
    body = visit.substitute(loop.body, {loop.var: loop.start + arith.Var(loop.var)})
    return ir.replace(loop, start=arith.Const(0), stop=loop.extent, body=body)


def _as_serial(loop: For, ctx: PassContext, why: str) -> For:
    ctx.remark(ir.SERIAL_LOOPS, f"the parallel loop {loop.var}: {why}")
    return ir.replace(loop, kind=LoopKind.SERIAL)

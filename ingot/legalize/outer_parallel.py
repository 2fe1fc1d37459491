"""Only the outermost loop may be shared out to threads; other parallel loops run in order. A step.

A launch splits one loop, the one that is the kernel's whole body. A parallel loop anywhere else was
wished for in vain, and the report says so.
"""

from __future__ import annotations

from ingot.legalize.context import Context
from ingot.loops import ir, visit
from ingot.loops.ir import For, Kernel, LoopKind, Stmt


def outer_parallel(kernel: Kernel, ctx: Context) -> Kernel:
    outer = kernel.body
    while isinstance(outer, ir.Alloc):  # allocations are placed later, within the loop if they may
        outer = outer.body

    def on_stmt(s: Stmt) -> Stmt:
        if isinstance(s, For) and s.kind is LoopKind.PARALLEL and s.uid not in kept:
            return as_serial(s, ctx, kernel.name, "it is not the outermost loop")
        return s

    kept = {outer.uid} if isinstance(outer, For) else set()
    return ir.replace(kernel, body=visit.map_stmt(kernel.body, on_stmt))


def as_serial(loop: For, ctx: Context, where: str, why: str) -> For:
    ctx.notes.append(f"{where}: the parallel loop {loop.var} runs on one thread: {why}")
    return ir.replace(loop, kind=LoopKind.SERIAL)

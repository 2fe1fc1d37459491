"""Vectorises VECTOR loops. A legalize pass; in: flat kernel. Out: the same without VECTOR loops.

    for j vector in 8: C[i*n + j] = A[i*n + j] * s[0]
    →  C[i*n : +8] = A[i*n : +8] * broadcast(s[0])

Inner loops stay, and their bodies become vector statements. A loop whose body cannot be vectorised
becomes a serial loop, and a remark says why.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.legalize.context import PassContext
from ingot.legalize.ranges import Ranges
from ingot.legalize.widen import NotVector, Widen
from ingot.loops import ir, visit
from ingot.loops.ir import For, Kernel, LoopKind, Stmt


def vectorize(kernel: Kernel, ctx: PassContext) -> Kernel:
    if not any(_is_vector(s) for s in visit.walk_stmts(kernel.body)):
        return kernel
    ranges = Ranges(kernel)
    allocs = (s.buffer for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.Alloc))
    private = frozenset(b.name for b in allocs if b.scope in (ir.THREAD, ir.REGISTER))

    def on_stmt(s: Stmt) -> Stmt:
        if not isinstance(s, For) or not _is_vector(s):
            return s
        return _widen(s, ctx, ranges, private)

    return ir.replace(kernel, body=visit.map_stmt(kernel.body, on_stmt))


def _is_vector(s: Stmt) -> bool:
    return isinstance(s, For) and s.kind is LoopKind.VECTOR


def _widen(loop: For, ctx: PassContext, ranges: Ranges, private: frozenset[str]) -> Stmt:
    width = arith.as_int(ranges.simplify(loop.extent))
    try:
        if width is None:
            raise NotVector(f"its extent {loop.extent} is not a constant")
        if width <= 1 or ctx.target.has_one_lane:
            return ir.replace(loop, kind=LoopKind.SERIAL)
        return Widen(loop, width, ctx.names, ranges, private).body()
    except NotVector as reason:
        ctx.remark(ir.SCALAR_CODE, f"the vector loop {loop.var}: {reason}")
        return ir.replace(loop, kind=LoopKind.SERIAL)

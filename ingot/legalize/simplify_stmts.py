"""Removes dead branches and empty loops, and inlines loops that run once.

The last legalize pass; one walk down and up.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.legalize import terms
from ingot.legalize.context import PassContext
from ingot.legalize.terms import EMPTY
from ingot.loops import ir, visit
from ingot.loops.ir import Kernel, LoopKind, Stmt
from ingot.support.stack import segmented


def simplify_stmts(kernel: Kernel, ctx: PassContext) -> Kernel:
    return ir.replace(kernel, body=_Simplify().stmt(kernel.body))


class _Simplify:
    def __init__(self) -> None:
        self.once: dict[str, arith.IntLike] = {}  # variables of loops that run once

    def index(self, i: arith.Expr) -> arith.Expr:
        if not self.once and not isinstance(i, arith.Opaque | arith.Binary):
            return i
        return arith.substitute(i, self.once, lambda payload: ir.index_of(self.expr(payload)))

    @segmented
    def expr(self, e: ir.Expr) -> ir.Expr:
        return visit.rebuild_expr(e, self.expr, self.index) if self.once else e

    @segmented
    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case ir.For():
                return self.loop(s)
            case ir.If(cond=ir.Lit(value=value), then=then, orelse=orelse):
                taken = then if value else orelse
                return EMPTY if taken is None else self.stmt(taken)
            case ir.If():
                return self.branch(s)
            case ir.Let(name=name, body=body):
                bound, new = self.expr(s.value), self.stmt(body)
                return EMPTY if terms.is_empty(new) else ir.Let(name, bound, new)
            case ir.Alloc(buffer=buffer, body=body):
                new = self.stmt(body)
                return EMPTY if terms.is_empty(new) else ir.Alloc(buffer, new)
            case ir.Seq(stmts=stmts):
                return ir.seq(*(self.stmt(x) for x in stmts))
        return visit.rebuild_stmt(s, self.stmt, self.expr, self.index)

    def loop(self, s: ir.For) -> Stmt:
        start, stop = self.index(s.start), self.index(s.stop)
        count = arith.as_int(stop - start)
        if count is not None and count <= 0:
            return EMPTY
        if count == 1 and s.kind is not LoopKind.BOUND:
            self.once[s.var] = start
            return self.stmt(s.body)
        body = self.stmt(s.body)
        return EMPTY if terms.is_empty(body) else ir.replace(s, start=start, stop=stop, body=body)

    def branch(self, s: ir.If) -> Stmt:
        cond, then = self.expr(s.cond), self.stmt(s.then)
        orelse = None if s.orelse is None else self.stmt(s.orelse)
        if orelse is not None and terms.is_empty(orelse):
            orelse = None
        if not terms.is_empty(then):
            return ir.If(cond, then, orelse)
        return EMPTY if orelse is None else ir.If(ir.Unary("not", cond), orelse)

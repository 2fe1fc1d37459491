"""Clones statements with fresh bound names, so that names stay unique within a kernel."""

from __future__ import annotations

from collections.abc import Mapping

from ingot.arith import expr as arith
from ingot.legalize.context import FreshNames
from ingot.loops import ir, visit
from ingot.support.stack import segmented


def copy_stmt(s: ir.Stmt, env: Mapping[str, arith.IntLike], names: FreshNames) -> ir.Stmt:
    """`s` with variables replaced by `env`, and every name it binds replaced by a fresh one."""
    return _Copy(env, names).stmt(s)


class _Copy:
    def __init__(self, env: Mapping[str, arith.IntLike], names: FreshNames):
        self.vars: dict[str, arith.IntLike] = dict(env)
        self.lets: dict[str, str] = {}
        self.buffers: dict[str, ir.Buffer] = {}
        self.names = names

    def index(self, i: arith.Expr) -> arith.Expr:
        return arith.substitute(i, self.vars, lambda payload: ir.index_of(self.expr(payload)))

    @segmented
    def expr(self, e: ir.Expr) -> ir.Expr:
        match e:
            case ir.Lit():
                return e
            case ir.Ref(name=name):
                return ir.replace(e, name=self.lets[name]) if name in self.lets else e
        new = visit.rebuild_expr(e, self.expr, self.index)
        if isinstance(new, ir.Load) and new.buffer.name in self.buffers:
            return ir.replace(new, buffer=self.buffers[new.buffer.name])
        return new

    def box(self, box: ir.Slice) -> ir.Slice:
        return ir.replace(box, buffer=self.buffers.get(box.buffer.name, box.buffer))

    def buffer(self, buffer: ir.Buffer) -> ir.Buffer:
        shape = tuple(self.index(d) for d in buffer.shape)
        return ir.replace(buffer, name=self.names.fresh(buffer.name), shape=shape)

    @segmented
    def stmt(self, s: ir.Stmt) -> ir.Stmt:
        match s:
            case ir.For(var=var):
                start, stop = self.index(s.start), self.index(s.stop)
                fresh = self.names.fresh(var)
                self.vars[var] = arith.Var(fresh)
                return ir.replace(s, var=fresh, start=start, stop=stop, body=self.stmt(s.body))
            case ir.Let(name=name):
                value = self.expr(s.value)
                self.lets[name] = fresh = self.names.fresh(name)
                return ir.Let(fresh, value, self.stmt(s.body))
            case ir.Alloc(buffer=buffer):
                self.buffers[buffer.name] = new_buffer = self.buffer(buffer)
                return ir.Alloc(new_buffer, self.stmt(s.body))
        new = visit.rebuild_stmt(s, self.stmt, self.expr, self.index)
        match new:
            case ir.Store(buffer=buffer) if buffer.name in self.buffers:
                return ir.replace(new, buffer=self.buffers[buffer.name])
            case ir.Call(args=args):
                return ir.replace(new, args=tuple(self.box(a) for a in args))
            case ir.CopyAsync(dst=dst, src=src):
                return ir.replace(new, dst=self.box(dst), src=self.box(src))
            case ir.Prefetch():
                return ir.replace(new, box=self.box(new.box))
        return new

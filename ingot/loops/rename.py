"""Renaming of bound names. Nothing else changes: no expression is folded or simplified.

In: a kernel or statement and maps of names. Out: the same with new names. Called by `build` and
`canonical`, and by passes that duplicate a statement (`copy_of`): names are unique in a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.ir import Buffer, Expr, Stmt
from ingot.support.stack import segmented

NameMap = Mapping[str, str]


def bound_names(s: Stmt) -> Iterator[str]:
    """Names bound by allocs, loops, lets and axes, in order of appearance."""
    for sub in visit.walk_stmts(s):
        match sub:
            case ir.For(var=name) | ir.Let(name=name) | ir.Alloc(buffer=Buffer(name=name)):
                yield name
            case ir.Block(axes=axes):
                yield from (axis.var for axis in axes)


def copy_of(s: Stmt, fresh: Callable[[str], str]) -> Stmt:
    """A copy of `s` with fresh names for everything it binds."""
    names = {name: fresh(name) for name in bound_names(s)}
    return Renamer(variables=names, lets=names, buffers=names).stmt(s)


def rename_buffers(kernel: ir.Kernel, names: NameMap) -> ir.Kernel:
    return Renamer(buffers=names).kernel(kernel) if names else kernel


@dataclass(frozen=True)
class Renamer:
    """One map for each kind of name; a name that is not in its map stays."""

    variables: NameMap = field(default_factory=dict)  # sizes, loops and axes
    lets: NameMap = field(default_factory=dict)
    buffers: NameMap = field(default_factory=dict)
    blocks: NameMap = field(default_factory=dict)
    tokens: NameMap = field(default_factory=dict)

    def kernel(self, k: ir.Kernel) -> ir.Kernel:
        sizes = tuple(ir.replace(s, name=self.variables.get(s.name, s.name)) for s in k.sizes)
        params = tuple(self.buffer(p) for p in k.params)
        return ir.replace(k, params=params, sizes=sizes, body=self.stmt(k.body))

    def buffer(self, b: Buffer) -> Buffer:
        shape = tuple(self.index(d) for d in b.shape)
        return ir.replace(b, name=self.buffers.get(b.name, b.name), shape=shape)

    def index(self, i: arith.Expr) -> arith.Expr:
        return arith.fold(i, self.leaf, lambda e, a, b: type(e)(a, b))

    def leaf(self, i: arith.Expr) -> arith.Expr:
        match i:
            case arith.Var(name=name):
                return arith.Var(self.variables[name]) if name in self.variables else i
            case arith.Opaque(payload=payload):
                return arith.Opaque(self.value(payload))
        return i

    @segmented
    def value(self, e: Expr) -> Expr:
        new = visit.rebuild_expr(e, self.value, self.index)
        match new:
            case ir.Ref(name=name) if name in self.lets:
                return ir.replace(new, name=self.lets[name])
            case ir.Load(buffer=buffer):
                return ir.replace(new, buffer=self.buffer(buffer))
        return new

    def annotation(self, item: Any) -> Any:
        """Rename the sizes in an annotation."""
        if isinstance(item, tuple):
            return tuple(self.annotation(x) for x in item)
        return self.index(item) if isinstance(item, arith.Expr) else item

    def box(self, box: ir.Slice) -> ir.Slice:
        return ir.replace(box, buffer=self.buffer(box.buffer))

    @segmented
    def stmt(self, s: Stmt) -> Stmt:
        """Children first, without flattening a Seq, then the names that `s` binds."""
        if isinstance(s, ir.Seq):
            return ir.Seq(tuple(self.stmt(x) for x in s.stmts))
        new = visit.rebuild_stmt(s, self.stmt, self.value, self.index)
        match new:
            case ir.For(var=name, annotations=annotations):
                var = self.variables.get(name, name)
                return ir.replace(new, var=var, annotations=self.annotation(annotations))
            case ir.Let(name=name):
                return ir.replace(new, name=self.lets.get(name, name))
            case ir.Alloc(buffer=buffer) | ir.Store(buffer=buffer):
                return ir.replace(new, buffer=self.buffer(buffer))
            case ir.Block(name=name, axes=axes, annotations=annotations):
                renamed = tuple(ir.replace(a, var=self.variables.get(a.var, a.var)) for a in axes)
                name = self.blocks.get(name, name)
                annotations = self.annotation(annotations)
                return ir.replace(new, name=name, axes=renamed, annotations=annotations)
            case ir.Call(args=args):
                return ir.replace(new, args=tuple(self.box(a) for a in args))
            case ir.CopyAsync(dst=dst, src=src, token=token):
                token = self.tokens.get(token, token)
                return ir.replace(new, dst=self.box(dst), src=self.box(src), token=token)
            case ir.Prefetch():
                return ir.replace(new, box=self.box(new.box))
            case ir.Wait(token=token):
                return ir.replace(new, token=self.tokens.get(token, token))
        return new

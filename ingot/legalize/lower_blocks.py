"""Lowers blocks to plain loops. A legalize pass. In: scheduled kernel. Out: kernel without Block.

    for k: for i: block(vi = i, vk = k, init: Y[vi] = 0): Y[vi] += A[vi, vk]
    →  for i': Y[i'] = 0
       for k: for i: Y[i] += A[i, k]

The init goes before the outermost loop that binds a reduce axis, inside copies of the loops between
it and the block that bind spatial axes, so that an accumulator can stay in registers over the whole
reduction. Where the path to the block is not a plain loop nest, a condition guards the init.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.arith.simplify import simplify
from ingot.legalize import terms
from ingot.legalize.context import FreshNames, PassContext
from ingot.loops import ir, visit
from ingot.loops.ir import AxisKind, Block, For, If, Kernel, LoopKind, Seq, Stmt
from ingot.support.stack import segmented

Path = tuple[Stmt, ...]


def lower_blocks(kernel: Kernel, ctx: PassContext) -> Kernel:
    return ir.replace(kernel, body=lower_body(kernel.body, ctx.names))


def lower_body(body: Stmt, names: FreshNames) -> Stmt:
    return _Lower(names).stmt(visit.map_stmt(body, _bind_guard), ())


def _bind_guard(s: Stmt) -> Stmt:
    """A block's guard with its axes replaced by their bindings."""
    if not isinstance(s, Block) or s.where is None:
        return s
    env = {axis.var: axis.binding for axis in s.axes}
    return ir.replace(s, where=visit.substitute(s.where, env))


class _Lower:
    def __init__(self, names: FreshNames):
        self.names = names
        self.before: dict[int, list[Stmt]] = {}  # id of a loop → inits to insert before it

    @segmented
    def stmt(self, s: Stmt, path: Path) -> Stmt:
        if isinstance(s, Block):
            return self.block(s, path)
        inner = (*path, s)
        new = visit.rebuild_stmt(s, lambda x: self.stmt(x, inner), _same, _same)
        return ir.seq(*self.before.pop(id(s), ()), new)

    def block(self, s: Block, path: Path) -> Stmt:
        env = {axis.var: axis.binding for axis in s.axes}
        body = self.stmt(visit.substitute(s.body, env), (*path, s))
        if s.init is None:
            return terms.guarded(s.where, body)
        init = self.stmt(visit.substitute(s.init, env), (*path, s))
        placement = _InitPlacement.find(s, path)
        if placement.loop is None and placement.starts_at_zero(s):
            return terms.guarded(s.where, ir.seq(init, body))
        if placement.loop is not None and placement.is_plain(s, init):
            self.before.setdefault(id(placement.loop), []).append(
                placement.build(s, init, self.names)
            )
            return terms.guarded(s.where, body)
        first = visit.conjoin(_is_zero(a.binding) for a in s.axes if a.kind is AxisKind.REDUCE)
        return terms.guarded(s.where, ir.seq(terms.guarded(first, init), body))


class _InitPlacement:
    """Where a block's init goes: before `loop`, inside copies of the spatial loops of `chain`."""

    def __init__(self, loop: For | None, chain: Path, reduce: set[str], spatial: set[str]):
        self.loop, self.chain = loop, chain
        self.reduce, self.spatial = reduce, spatial

    @staticmethod
    def find(block: Block, path: Path) -> _InitPlacement:
        reduce: set[str] = set()
        spatial: set[str] = set()
        for axis in block.axes:
            used = terms.index_vars(axis.binding)
            (reduce if axis.kind is AxisKind.REDUCE else spatial).update(used)
        for n, s in enumerate(path):
            if isinstance(s, For) and s.var in reduce:
                return _InitPlacement(s, path[n + 1 :], reduce, spatial)
        return _InitPlacement(None, (), reduce, spatial)

    @property
    def loops(self) -> list[For]:
        assert self.loop is not None
        return [self.loop, *(s for s in self.chain if isinstance(s, For))]

    def is_plain(self, block: Block, init: Stmt) -> bool:
        return (
            all(self._is_transparent(s) for s in self.chain)
            and self.starts_at_zero(block)
            and not any(f.var in self.reduce and f.var in self.spatial for f in self.loops)
            and all(self._is_rectangular(f) for f in self.loops[1:])
            and not any(terms.has_load(c) or terms.refs(c) for c in self._guards(block))
            and not self._has_conflict(block, init)
        )

    def starts_at_zero(self, block: Block) -> bool:
        """Do these loops start at the first point of the reduction? A peeled tail does not, and
        must not reset the accumulator."""
        loops = self.loops if self.loop is not None else []
        starts = {f.var: f.start for f in loops if f.var in self.reduce}
        bindings = (a.binding for a in block.axes if a.kind is AxisKind.REDUCE)
        return all(arith.is_const(simplify(arith.substitute(e, starts)), 0) for e in bindings)

    def _is_transparent(self, s: Stmt) -> bool:
        if isinstance(s, If):
            return s.orelse is None
        return isinstance(s, For | Seq)

    def _is_rectangular(self, f: For) -> bool:
        if f.var not in self.spatial:
            return True
        return not (terms.index_vars(f.start) | terms.index_vars(f.stop)) & self._reduce_vars

    @property
    def _reduce_vars(self) -> set[str]:
        """Variables of the reduce loops, which the init is hoisted out of."""
        return {f.var for f in self.loops if f.var not in self.spatial}

    def _has_conflict(self, block: Block, init: Stmt) -> bool:
        """Does anything else in the loop access what init writes, or write what it reads?"""
        assert self.loop is not None
        writes, reads = visit.written(init), visit.read(init)
        outside = visit.replace_stmt(self.loop, block, None)
        if writes & terms.accessed(outside):
            return True
        return bool(reads & visit.written(self.loop))

    def _guards(self, block: Block) -> list[ir.Expr]:
        conditions = [s.cond for s in self.chain if isinstance(s, If)]
        return conditions + ([block.where] if block.where is not None else [])

    def build(self, block: Block, init: Stmt, names: FreshNames) -> Stmt:
        """The init in copies of the spatial loops, under the guards of the first iteration."""
        starts = {f.var: f.start for f in self.loops if f.var not in self.spatial}
        result = self._guard(block.where, starts, init)
        for s in reversed(self.chain):
            match s:
                case If(cond=cond):
                    result = self._guard(cond, starts, result)
                case For() if s.var in self.spatial:
                    fresh = names.fresh(s.var)
                    body = visit.substitute(result, {s.var: arith.Var(fresh)})
                    kind = LoopKind.SERIAL if s.kind is LoopKind.PARALLEL else s.kind
                    result = ir.replace(s, var=fresh, body=body, kind=kind, uid=ir.fresh_id())
        return result

    def _guard(self, cond: ir.Expr | None, starts: dict[str, arith.Expr], body: Stmt) -> Stmt:
        """Conditions on reduce loops alone are dropped: an empty reduction still needs its init."""
        if cond is None:
            return body
        kept = [c for c in visit.conjuncts(cond) if self._is_spatial(c)]
        return terms.guarded(visit.conjoin(visit.substitute(c, starts) for c in kept), body)

    def _is_spatial(self, cond: ir.Expr) -> bool:
        used = terms.value_vars(cond)
        return not used & self._reduce_vars or bool(
            used & {f.var for f in self.loops} - self._reduce_vars
        )


def _is_zero(binding: arith.Expr) -> ir.Expr:
    return ir.Compare("eq", ir.Index(binding), ir.Index(arith.Const(0)))


def _same(x):
    return x

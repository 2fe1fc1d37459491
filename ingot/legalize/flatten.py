"""Flattens every buffer to one dimension, and simplifies indices and guards. A legalize pass.

    C[i, j] of f32[8, n]  →  C[i*n + j] of f32[8*n]

In: kernel without blocks. Out: each Load and Store has one index; conditions that always or never
hold are gone. Buffers that instructions access keep their shape, since a Slice is a box.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ingot.arith import expr as arith
from ingot.legalize import terms
from ingot.legalize.conditions import FALSE, fold
from ingot.legalize.context import PassContext
from ingot.legalize.ranges import Ranges
from ingot.legalize.terms import EMPTY, TRUE
from ingot.loops import ir, visit
from ingot.loops.ir import Buffer, Kernel, Stmt
from ingot.support.stack import segmented


def flatten(kernel: Kernel, ctx: PassContext) -> Kernel:
    flattener = _Flatten(kernel, ctx.target.machine.core.line_bytes)
    params = tuple(flattener.buffer(b) for b in kernel.params)
    return ir.replace(kernel, params=params, body=flattener.stmt(kernel.body))


class _Flatten:
    def __init__(self, kernel: Kernel, line_bytes: int):
        self.line_bytes = line_bytes
        self.ranges = Ranges(kernel)
        self.boxed = _boxed(kernel.body)
        self.params = {p.name for p in kernel.params}
        self.flat: dict[str, Buffer] = {}
        self.known: set[ir.Expr] = set()  # conditions that hold here
        self._exprs: dict[ir.Expr, ir.Expr] = {}

    def buffer(self, b: Buffer) -> Buffer:
        if b.name not in self.flat:
            shape = b.shape if b.name in self.boxed else (self.index(arith.product(list(b.shape))),)
            self.flat[b.name] = ir.replace(b, shape=shape)
        return self.flat[b.name]

    def flat_index(self, b: Buffer, indices: tuple[arith.Expr, ...]) -> tuple[arith.Expr, ...]:
        if b.name in self.boxed:
            return tuple(self.index(i) for i in indices)
        offset: arith.Expr = arith.Const(0)
        for extent, index in zip(b.shape, indices):
            offset = offset * extent + index
        return (self.index(offset),)

    def index(self, i: arith.Expr) -> arith.Expr:
        if isinstance(i, arith.Const | arith.Var):
            return self.ranges.simplify(i)
        return self.ranges.simplify(
            arith.substitute(i, {}, lambda payload: ir.index_of(self.expr(payload)))
        )

    @segmented
    def expr(self, e: ir.Expr) -> ir.Expr:
        if isinstance(e, ir.Lit | ir.Ref):
            return e
        new = self._exprs.get(e)
        if new is None:
            new = self._exprs[e] = self._rebuild(e)
        return TRUE if new in self.known else new

    def _rebuild(self, e: ir.Expr) -> ir.Expr:
        if isinstance(e, ir.Load):
            e = ir.replace(
                e,
                buffer=self.buffer(e.buffer),
                indices=self.flat_index(e.buffer, e.indices),
                stride=self.index(e.stride),
                mask=None if e.mask is None else self.expr(e.mask),
                other=None if e.other is None else self.expr(e.other),
            )
            return fold(e, self.ranges)
        return fold(visit.rebuild_expr(e, self.expr, self.index), self.ranges)

    @segmented
    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case ir.Store():
                return self.store(s)
            case ir.Alloc(buffer=buffer, body=body):
                return ir.Alloc(self.buffer(buffer), self.stmt(body))
            case ir.If():
                return self.branch(s)
            case ir.Prefetch(box=box):
                return ir.seq(*(ir.replace(s, box=line) for line in self.lines(box)))
        return visit.rebuild_stmt(s, self.stmt, self.expr, self.index)

    def lines(self, box: ir.Slice) -> Iterator[ir.Slice]:
        """One element of each cache line in a box of rows, the unit of a prefetch.

        Nothing for a buffer that is no longer a parameter: no access to it is left.
        """
        if box.buffer.name not in self.params:
            return
        per_line = max(1, self.line_bytes // box.buffer.dtype.storage_bytes)
        counts = [arith.as_int(e) or 1 for e in box.extents]
        for offsets in itertools.product(*map(range, counts[:-1]), range(0, counts[-1], per_line)):
            indices = tuple(o + i for o, i in zip(box.offsets, offsets))
            flat = self.flat_index(box.buffer, indices)
            yield ir.Slice(self.buffer(box.buffer), flat, (arith.Const(1),) * len(flat))

    def store(self, s: ir.Store) -> Stmt:
        mask = None if s.mask is None else self.expr(s.mask)
        if mask == FALSE:
            return EMPTY
        return ir.replace(
            s,
            buffer=self.buffer(s.buffer),
            indices=self.flat_index(s.buffer, s.indices),
            value=self.expr(s.value),
            stride=self.index(s.stride),
            mask=None if mask == TRUE else mask,
        )

    def branch(self, s: ir.If) -> Stmt:
        cond = self.expr(s.cond)
        if isinstance(cond, ir.Lit):
            taken = s.then if cond.value else s.orelse
            return self.stmt(taken) if taken is not None else EMPTY
        added = {c for c in visit.conjuncts(cond) if not terms.has_load(c)} - self.known
        then = self._under(added, s.then)
        orelse = None if s.orelse is None else self.stmt(s.orelse)
        return ir.If(cond, then, orelse)

    def _under(self, added: set[ir.Expr], body: Stmt) -> Stmt:
        """`body` where the conditions `added` hold; it has a memo of its own."""
        if not added:
            return self.stmt(body)
        outer, self._exprs = self._exprs, {}
        self.known |= added
        new = self.stmt(body)
        self.known -= added
        self._exprs = outer
        return new


def _boxed(body: Stmt) -> set[str]:
    names: set[str] = set()
    for s in visit.walk_stmts(body):
        match s:
            case ir.Call(args=args):
                names.update(box.buffer.name for box in args)
            case ir.CopyAsync(dst=dst, src=src):
                names.update((dst.buffer.name, src.buffer.name))
    return names

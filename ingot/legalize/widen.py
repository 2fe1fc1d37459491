"""The body of one vector loop, made wide: statements here, values in widen_values.py.

A condition that differs between lanes becomes a mask on loads and stores. A store to one element
from all lanes is a reduction over the lanes. What has no wide form raises `NotVector`.
"""

from __future__ import annotations

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.legalize import terms
from ingot.legalize.copies import copy_stmt
from ingot.legalize.widen_values import NotVector, WidenValues, masked
from ingot.loops import ir, visit
from ingot.loops.build import identity
from ingot.loops.ir import Stmt

__all__ = ["NotVector", "Widen"]

MAX_COPIED = 40  # statements of a guarded body that is written twice, with masks and without
LANE_REDUCTIONS = ("add", "mul", "min", "max", "and", "or")


class Widen(WidenValues):
    def body(self) -> Stmt:
        return self.stmt(self.loop.body)

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case ir.Store():
                return self.store(s)
            case ir.Seq(stmts=stmts):
                return ir.seq(*(self.stmt(x) for x in stmts))
            case ir.For():
                return self.inner_loop(s)
            case ir.Let(name=name, value=value, body=body):
                wide = self.wide(value)
                if wide.lanes > 1:
                    self.wide_lets.add(name)
                return ir.Let(name, wide, self.stmt(body))
            case ir.Alloc(buffer=buffer, body=body):
                return ir.Alloc(self.own_buffer(buffer), self.stmt(body))
            case ir.If():
                return self.branch(s)
            case ir.Prefetch():
                return terms.EMPTY  # lanes lie side by side: the loop outside may ask for them
            case _:
                raise NotVector(f"a {type(s).__name__} statement has no wide form")

    def inner_loop(self, s: ir.For) -> Stmt:
        if any(self.varies(i) for i in (s.start, s.stop)):
            raise NotVector(f"the bounds of the loop {s.var} differ between lanes")
        return ir.replace(
            s, start=self.uniform(s.start), stop=self.uniform(s.stop), body=self.stmt(s.body)
        )

    def branch(self, s: ir.If) -> Stmt:
        parts = visit.conjuncts(s.cond)
        differing = [c for c in parts if self.value_varies(c)]
        if not differing:
            orelse = None if s.orelse is None else self.stmt(s.orelse)
            return ir.If(self.wide(s.cond), self.stmt(s.then), orelse)
        for x in visit.walk_stmts(s):
            if isinstance(x, ir.Fail):
                raise NotVector("it may fail in one lane alone")
        if s.orelse is not None:
            return self.by_masks(s)
        agreed = visit.conjoin(self.wide(c) for c in parts if c not in differing)
        inner = visit.conjoin(differing)
        assert inner is not None
        return terms.guarded(agreed, self.by_ends(ir.If(inner, s.then), differing))

    def by_ends(self, s: ir.If, conditions: list[ir.Expr]) -> Stmt:
        """Conditions that turn false once along the lanes: the first or last lane tells whether
        all are on, and then no mask is needed."""
        ends = [self.ends(c) for c in conditions]
        is_small = sum(1 for _ in visit.walk_stmts(s)) <= MAX_COPIED
        always_masked = ir.MASKED in self.loop.annotations  # the schedule wants no branch
        if self.mask is not None or None in ends or not is_small or always_masked:
            return self.by_masks(s)
        every = visit.conjoin(end[0] for end in ends if end)
        some = visit.conjoin(end[1] for end in ends if end)
        assert every is not None and some is not None
        whole = self.stmt(copy_stmt(s.then, {}, self.names))
        self.some_on = len(ends) == 1  # else each condition holds somewhere, maybe in no one lane
        part = self.by_masks(s)
        self.some_on = False
        return ir.If(every, whole, ir.If(some, part))

    def by_masks(self, s: ir.If) -> Stmt:
        cond = self.wide(s.cond)
        name = self.names.fresh("mask")
        mask = ir.Ref(name, dtypes.bool_, self.width)
        parts = [self._under(mask, s.then)]
        if s.orelse is not None:
            parts.append(self._under(ir.Unary("not", mask), s.orelse))
        return ir.Let(name, cond, ir.seq(*parts))

    def _under(self, mask: ir.Expr, body: Stmt) -> Stmt:
        """`body` for the lanes of `mask`, which has a name: every access inside uses it."""
        outer, some_on = self.mask, self.some_on
        self.some_on = some_on and outer is None  # what is on inside may be no lane at all
        joined = self.both(outer, mask)
        assert joined is not None
        if isinstance(joined, ir.Ref):
            self.mask = joined
            new = self.stmt(body)
        else:
            name = self.names.fresh("mask")
            self.mask = ir.Ref(name, dtypes.bool_, self.width)
            new = ir.Let(name, joined, self.stmt(body))
        self.mask, self.some_on = outer, some_on
        return new

    def store(self, s: ir.Store) -> Stmt:
        if s.value.lanes > 1:
            raise NotVector("its body is wide already")
        mask = self.both(self.mask, None if s.mask is None else self.wide(s.mask))
        buffer, index = self.place(s.buffer, s.indices[0])
        if not self.varies(index):
            return self.store_to_one(s, self.uniform(index), mask)
        value = terms.broadcast(self.wide(s.value), self.width)
        form = self.affine(index)
        if form is None:
            return self.scatter(s, index, value, mask)
        stride, base = form
        if mask is None:
            return ir.Store(buffer, (base,), value, stride)
        mask = terms.broadcast(mask, self.width)
        if self.is_safe(buffer, base, stride):  # nobody else sees it, and registers have no masks
            value = ir.Select(mask, value, ir.Load(buffer, (base,), self.width, stride))
            return ir.Store(buffer, (base,), value, stride)
        return ir.Store(buffer, (base,), value, stride, mask)

    def scatter(self, s: ir.Store, index: arith.Expr, value: ir.Expr, mask: ir.Expr | None) -> Stmt:
        """Element by element, in the order of the lanes; value and mask are computed once, wide."""
        if mask is not None and not isinstance(mask, ir.Ref):
            on = self.names.fresh("mask")
            named = ir.Ref(on, dtypes.bool_, mask.lanes)
            return ir.Let(on, mask, self.scatter(s, index, value, named))
        name = self.names.fresh("lanes")
        ref = ir.Ref(name, value.dtype, self.width)
        buffer = self.own.get(s.buffer.name, s.buffer)
        stores: list[Stmt] = []
        for lane in range(self.width):
            at = (self.index_at(index, lane),)  # of an own buffer too: `index` is placed already
            one = ir.Store(buffer, at, terms.extract(ref, lane))
            guard = None if mask is None else terms.extract(mask, lane)
            stores.append(terms.guarded(guard, one))
        return ir.Let(name, value, ir.seq(*stores))

    def store_to_one(self, s: ir.Store, index: arith.Expr, mask: ir.Expr | None) -> Stmt:
        """All lanes store to one element: a reduction over the lanes, or the same value by each."""
        if not self._reads_itself(s):
            value = self.wide(s.value)
            if value.lanes > 1 or (mask is not None and mask.lanes > 1):
                raise NotVector(
                    f"its lanes store different values to one element of {s.buffer.name}"
                )
            return ir.Store(s.buffer, (index,), value, mask=mask)
        op, term = self._reduction(s)
        wide = terms.broadcast(self.wide(term), self.width)
        if mask is not None and mask.lanes > 1:
            neutral = terms.broadcast(_neutral(op, wide.dtype), self.width)
            wide = ir.Select(mask, wide, neutral)
            mask = None if self.some_on and s.mask is None else self.any_of(mask)
        total = self.lane_reduce(op, wide)
        old = masked(ir.Load(s.buffer, (index,)), mask)
        return ir.Store(s.buffer, (index,), ir.Binary(op, old, total), mask=mask)

    def _reads_itself(self, s: ir.Store) -> bool:
        return any(
            isinstance(x, ir.Load) and x.buffer.name == s.buffer.name
            for x in visit.walk_exprs(s.value)
        )

    def _reduction(self, s: ir.Store) -> tuple[str, ir.Expr]:
        """x[i] = x[i] op term  →  (op, term)"""
        match s.value:
            case ir.Binary(op=op, a=a, b=b) if op in LANE_REDUCTIONS:
                for old, term in ((a, b), (b, a)):
                    is_old = isinstance(old, ir.Load) and old.buffer.name == s.buffer.name
                    if is_old and old.indices == s.indices and not self._mentions(term, s.buffer):  # type: ignore[attr-defined]
                        return op, term
        raise NotVector(f"its lanes update one element of {s.buffer.name} in no way that is known")

    def _mentions(self, e: ir.Expr, buffer: ir.Buffer) -> bool:
        loads = (x for x in visit.walk_exprs(e) if isinstance(x, ir.Load))
        return any(x.buffer.name == buffer.name for x in loads)


def _neutral(op: str, dtype: dtypes.DType) -> ir.Lit:
    # -0.0, not 0.0: adding it leaves every value as it is, -0.0 too
    return ir.Lit(-0.0, dtype) if op == "add" and dtype.is_float else identity(op, dtype)

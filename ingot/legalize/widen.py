"""Vectorises the body of one VECTOR loop: statements here, values in widen_values.py.

A condition that varies over the lanes becomes a mask on loads and stores. A store of all lanes to
one element is a lane reduction. A statement without a vector form raises `NotVector`.
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
from ingot.support.stack import segmented

__all__ = ["NotVector", "Widen"]

MAX_COPIED = 40  # statements of a guarded body that is versioned with and without masks; heuristic
LANE_REDUCTIONS = ("add", "mul", "min", "max", "and", "or")


class Widen(WidenValues):
    def body(self) -> Stmt:
        return self.stmt(self.loop.body)

    @segmented
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
                return ir.Alloc(self.per_lane_buffer(buffer), self.stmt(body))
            case ir.If():
                return self.branch(s)
            case ir.Prefetch():
                return terms.EMPTY  # the lanes are adjacent: a loop outside may prefetch them
            case _:
                raise NotVector(f"a {type(s).__name__} statement has no vector form")

    def inner_loop(self, s: ir.For) -> Stmt:
        if any(self.varies(i) for i in (s.start, s.stop)):
            raise NotVector(f"the bounds of the loop {s.var} vary over the lanes")
        return ir.replace(
            s, start=self.uniform(s.start), stop=self.uniform(s.stop), body=self.stmt(s.body)
        )

    def branch(self, s: ir.If) -> Stmt:
        conjuncts = visit.conjuncts(s.cond)
        varying = [c for c in conjuncts if self.value_varies(c)]
        if not varying:
            orelse = None if s.orelse is None else self.stmt(s.orelse)
            return ir.If(self.wide(s.cond), self.stmt(s.then), orelse)
        for x in visit.walk_stmts(s):
            if isinstance(x, ir.Fail):
                raise NotVector("it may fail in one lane alone")
        if s.orelse is not None:
            return self.by_masks(s)
        uniform = visit.conjoin(self.wide(c) for c in conjuncts if c not in varying)
        inner = visit.conjoin(varying)
        assert inner is not None
        return terms.guarded(uniform, self.by_end_lanes(ir.If(inner, s.then), varying))

    def by_end_lanes(self, s: ir.If, conditions: list[ir.Expr]) -> Stmt:
        """Conditions that are monotonic over the lanes: the first or last lane decides whether all
        lanes are active, and then no mask is needed."""
        ends = [self.ends(c) for c in conditions]
        is_small = sum(1 for _ in visit.walk_stmts(s)) <= MAX_COPIED
        always_masked = ir.MASKED in self.loop.annotations  # the schedule avoids the branch
        if self.mask is not None or None in ends or not is_small or always_masked:
            return self.by_masks(s)
        every = visit.conjoin(end[0] for end in ends if end)
        some = visit.conjoin(end[1] for end in ends if end)
        assert every is not None and some is not None
        unmasked = self.stmt(copy_stmt(s.then, {}, self.names))
        self.some_active = len(ends) == 1  # else each condition may hold in a different lane
        under_mask = self.by_masks(s)
        self.some_active = False
        return ir.If(every, unmasked, ir.If(some, under_mask))

    def by_masks(self, s: ir.If) -> Stmt:
        cond = self.wide(s.cond)
        name = self.names.fresh("mask")
        mask = ir.Ref(name, dtypes.bool_, self.width)
        branches = [self._under(mask, s.then)]
        if s.orelse is not None:
            branches.append(self._under(ir.Unary("not", mask), s.orelse))
        return ir.Let(name, cond, ir.seq(*branches))

    def _under(self, mask: ir.Expr, body: Stmt) -> Stmt:
        """`body` for the lanes of `mask`, a Ref: every access inside uses it."""
        outer, some_active = self.mask, self.some_active
        self.some_active = some_active and outer is None  # a nested mask may have no active lane
        joined = self.both(outer, mask)
        assert joined is not None
        if isinstance(joined, ir.Ref):
            self.mask = joined
            new = self.stmt(body)
        else:
            name = self.names.fresh("mask")
            self.mask = ir.Ref(name, dtypes.bool_, self.width)
            new = ir.Let(name, joined, self.stmt(body))
        self.mask, self.some_active = outer, some_active
        return new

    def store(self, s: ir.Store) -> Stmt:
        if s.value.lanes > 1:
            raise NotVector("its body is already vectorised")
        mask = self.both(self.mask, None if s.mask is None else self.wide(s.mask))
        buffer, index = self.translate(s.buffer, s.indices[0])
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
        if self.is_safe(buffer, base, stride):  # private; registers have no masked stores
            value = ir.Select(mask, value, ir.Load(buffer, (base,), self.width, stride))
            return ir.Store(buffer, (base,), value, stride)
        return ir.Store(buffer, (base,), value, stride, mask)

    def scatter(self, s: ir.Store, index: arith.Expr, value: ir.Expr, mask: ir.Expr | None) -> Stmt:
        """One scalar store for each lane, in lane order; value and mask are vectors."""
        if mask is not None and not isinstance(mask, ir.Ref):
            name = self.names.fresh("mask")
            named = ir.Ref(name, dtypes.bool_, mask.lanes)
            return ir.Let(name, mask, self.scatter(s, index, value, named))
        name = self.names.fresh("lanes")
        ref = ir.Ref(name, value.dtype, self.width)
        buffer = self.per_lane.get(s.buffer.name, s.buffer)
        stores: list[Stmt] = []
        for lane in range(self.width):
            at = (self.index_at(index, lane),)  # `index` is into the per-lane buffer already
            one = ir.Store(buffer, at, terms.extract(ref, lane))
            guard = None if mask is None else terms.extract(mask, lane)
            stores.append(terms.guarded(guard, one))
        return ir.Let(name, value, ir.seq(*stores))

    def store_to_one(self, s: ir.Store, index: arith.Expr, mask: ir.Expr | None) -> Stmt:
        """All lanes store to one element: a lane reduction, or the same value from every lane."""
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
            mask = None if self.some_active and s.mask is None else self.any_of(mask)
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
        raise NotVector(f"its lanes update one element of {s.buffer.name} in an unsupported way")

    def _mentions(self, e: ir.Expr, buffer: ir.Buffer) -> bool:
        loads = (x for x in visit.walk_exprs(e) if isinstance(x, ir.Load))
        return any(x.buffer.name == buffer.name for x in loads)


def _neutral(op: str, dtype: dtypes.DType) -> ir.Lit:
    # -0.0, not 0.0: adding it changes no value, not even -0.0
    return ir.Lit(-0.0, dtype) if op == "add" and dtype.is_float else identity(op, dtype)

"""Vectorises the values of a VECTOR loop's body. Used by widen.py.

A value that is uniform over the lanes stays scalar until it meets a vector operand (`broadcast`).
Affine indices give strided vectors, other indices are gathered lane by lane.
"""

from __future__ import annotations

from typing import assert_never

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.legalize import terms
from ingot.legalize.conditions import as_index
from ingot.legalize.context import FreshNames
from ingot.legalize.ranges import Ranges
from ingot.loops import ir, visit
from ingot.support.stack import segmented


class NotVector(Exception):
    """The loop cannot be vectorised; the message is the reason."""


class WidenValues:
    def __init__(
        self, loop: ir.For, width: int, names: FreshNames, ranges: Ranges, private: frozenset[str]
    ):
        self.private = private  # buffers in thread or register scope
        self.loop, self.width = loop, width
        self.names, self.ranges = names, ranges
        self.start = loop.start
        self.lane = arith.Var(loop.var) - loop.start  # 0 … width-1
        self.mask: ir.Expr | None = None  # active lanes; None where all are active
        self.some_active = False  # with a mask: at least one lane is active
        self.wide_lets: set[str] = set()
        self.per_lane: dict[str, ir.Buffer] = {}  # buffers allocated inside, a copy for each lane

    # --- uniform or varying over the lanes ------------------------------------------------------

    def varies(self, index: arith.Expr) -> bool:
        if self.loop.var in terms.index_vars(index):
            return True
        return any(self.value_varies(v) for v in visit.opaque_values(index))

    def value_varies(self, e: ir.Expr) -> bool:
        if self.loop.var in terms.value_vars(e) or terms.refs(e) & self.wide_lets:
            return True
        return bool(self.per_lane) and any(
            isinstance(x, ir.Load) and x.buffer.name in self.per_lane for x in visit.walk_exprs(e)
        )

    def affine(self, index: arith.Expr) -> tuple[arith.Expr, arith.Expr] | None:
        """(stride, first index) of an index that is affine in the lane, else None."""
        if any(self.value_varies(v) for v in visit.opaque_values(index)):
            return None
        form = self.ranges.affine(index, self.loop.var)
        if form is None:
            return None
        stride, rest = form
        return stride, self.uniform(self.ranges.simplify(rest + stride * self.start))

    def per_lane_buffer(self, buffer: ir.Buffer) -> ir.Buffer:
        """A buffer with a copy for each lane, the lanes innermost."""
        made = ir.replace(buffer, shape=(buffer.shape[0] * self.width,))
        self.per_lane[buffer.name] = made
        return made

    def translate(self, buffer: ir.Buffer, index: arith.Expr) -> tuple[ir.Buffer, arith.Expr]:
        if buffer.name not in self.per_lane:
            return buffer, index
        return self.per_lane[buffer.name], index * self.width + self.lane

    # --- one lane ------------------------------------------------------------------------------

    def index_at(self, index: arith.Expr, lane: int) -> arith.Expr:
        env = {self.loop.var: self.start + lane}
        new = arith.substitute(index, env, lambda p: ir.index_of(self.value_at(p, lane)))
        return self.ranges.simplify(new)

    @segmented
    def value_at(self, e: ir.Expr, lane: int) -> ir.Expr:
        """The scalar that lane `lane` computes for `e`."""
        if isinstance(e, ir.Ref) and e.name in self.wide_lets:
            return terms.extract(ir.replace(e, width=self.width), lane)
        new = visit.rebuild_expr(
            e, lambda x: self.value_at(x, lane), lambda i: self.index_at(i, lane)
        )
        if not isinstance(new, ir.Load):
            return new
        if new.buffer.name in self.per_lane:
            at = (new.indices[0] * self.width + lane,)
            new = ir.replace(new, buffer=self.per_lane[new.buffer.name], indices=at)
        on = None if self.mask is None else terms.extract(self.mask, lane)
        return masked(new, self.both(on, new.mask))

    def uniform(self, index: arith.Expr) -> arith.Expr:
        """An index that is uniform over the lanes; loads inside it are masked like all others."""
        if not isinstance(index, arith.Binary | arith.Opaque):
            return index
        return arith.substitute(index, {}, lambda p: ir.index_of(self.wide(p)))

    # --- all lanes -----------------------------------------------------------------------------

    @segmented
    def wide(self, e: ir.Expr) -> ir.Expr:
        """`e` for all lanes: a vector, or a scalar if it is uniform."""
        match e:
            case ir.Lit():
                return e
            case ir.Ref(name=name, width=width):
                if width > 1:
                    raise NotVector("its body is already vectorised")
                return ir.replace(e, width=self.width) if name in self.wide_lets else e
            case ir.Index(expr=index):
                return self.wide_index(index)
            case ir.Load():
                return self.load(e)
            case ir.Select(cond=cond, a=a, b=b):
                return ir.Select(*self.together(cond, a, b))
            case ir.Unary(a=a) | ir.Cast(a=a) | ir.Bitcast(a=a):
                return ir.replace(e, a=self.wide(a))
            case ir.Binary(a=a, b=b) | ir.Compare(a=a, b=b):
                x, y = self.together(a, b)
                return ir.replace(e, a=x, b=y)
            case ir.Fma(a=a, b=b, c=c):
                return ir.Fma(*self.together(a, b, c))
            case ir.Math(args=args):
                return ir.replace(e, args=tuple(self.together(*args)))
            case ir.Ramp() | ir.Broadcast() | ir.Lanes() | ir.Shuffle() | ir.LaneReduce():
                raise NotVector("its body is already vectorised")
            case _:
                assert_never(e)  # type: ignore[arg-type]

    def together(self, *operands: ir.Expr) -> list[ir.Expr]:
        """The operands, all vectors or all scalars."""
        new = [self.wide(x) for x in operands]
        lanes = max(x.lanes for x in new)
        return [terms.broadcast(x, lanes) for x in new]

    def wide_index(self, index: arith.Expr) -> ir.Expr:
        if not self.varies(index):
            return ir.Index(self.uniform(index))
        form = self.affine(index)
        if form is not None:
            return ir.Ramp(form[1], form[0], self.width)
        return ir.Lanes(tuple(ir.Index(self.index_at(index, n)) for n in range(self.width)))

    def load(self, e: ir.Load) -> ir.Expr:
        if e.width > 1:
            raise NotVector("its body is already vectorised")
        own_mask = None if e.mask is None else self.wide(e.mask)
        mask = self.both(self.mask, own_mask)
        other = None if e.other is None else self.wide(e.other)
        buffer, index = self.translate(e.buffer, e.indices[0])
        other_varies = other is not None and other.lanes > 1
        own_varies = own_mask is not None and own_mask.lanes > 1
        if not self.varies(index) and not other_varies and not own_varies:
            return self.load_one(ir.Load(buffer, (self.uniform(index),)), own_mask, other)
        form = self.affine(index)
        if form is None:
            return ir.Lanes(tuple(self.value_at(e, lane) for lane in range(self.width)))
        wide_mask = None if mask is None else terms.broadcast(mask, self.width)
        wide_other = None if other is None else terms.broadcast(other, self.width)
        stride, base = form
        if stride == 0:
            assert wide_mask is not None and wide_other is not None
            return self._one_for_some(ir.Load(buffer, (base,)), wide_mask, wide_other)
        new = ir.Load(buffer, (base,), self.width, stride, None, wide_other)
        if own_mask is None and self.is_safe(buffer, base, stride):
            return new  # inactive lanes load values that are never used
        return masked(new, wide_mask)

    def is_safe(self, buffer: ir.Buffer, base: arith.Expr, stride: arith.Expr) -> bool:
        """May inactive lanes access memory? Only in a private buffer, where all are in bounds."""
        if buffer.name not in self.private and buffer.name not in self.per_lane:
            return False
        ends = (base, base + stride * (self.width - 1))
        last = buffer.shape[0] - 1
        return all(self.ranges.at_least(e, 0) and self.ranges.is_at_most(e, last) for e in ends)

    def ends(self, cond: ir.Expr) -> tuple[ir.Expr, ir.Expr] | None:
        """(true in all lanes, true in some lane) as scalars, for a condition on affine indices."""
        if not isinstance(cond, ir.Compare) or cond.op not in ("lt", "le", "gt", "ge"):
            return None
        a, b = as_index(cond.a), as_index(cond.b)
        if a is None or b is None or visit.opaque_values(a) or visit.opaque_values(b):
            return None
        form = self.ranges.affine(b - a if cond.op in ("lt", "le") else a - b, self.loop.var)
        slope = None if form is None else arith.as_int(form[0])
        if slope is None:
            return None
        hardest, easiest = (0, self.width - 1) if slope > 0 else (self.width - 1, 0)
        return self._at(cond.op, a, b, hardest), self._at(cond.op, a, b, easiest)

    def _at(self, op: str, a: arith.Expr, b: arith.Expr, lane: int) -> ir.Expr:
        return ir.Compare(op, ir.Index(self.index_at(a, lane)), ir.Index(self.index_at(b, lane)))

    def load_one(self, e: ir.Load, mask: ir.Expr | None, other: ir.Expr | None) -> ir.Expr:
        """One element for all lanes, loaded only if some lane is active."""
        some = None if self.mask is None or self.some_active else self.any_of(self.mask)
        return masked(ir.replace(e, other=other), self.both(some, mask))

    def _one_for_some(self, e: ir.Load, mask: ir.Expr, other: ir.Expr) -> ir.Expr:
        """One element for the lanes of `mask`, `other` for the rest."""
        one = masked(e, self.any_of(mask))
        return ir.Select(mask, ir.Broadcast(one, self.width), other)

    def any_of(self, mask: ir.Expr) -> ir.Expr:
        return self.lane_reduce("or", mask)

    def lane_reduce(self, op: str, e: ir.Expr) -> ir.Expr:
        if self.width & (self.width - 1):
            raise NotVector(f"{self.width} lanes are not a power of two")
        return ir.LaneReduce(op, e)

    def both(self, a: ir.Expr | None, b: ir.Expr | None) -> ir.Expr | None:
        if a is None or b is None:
            return b if a is None else a
        lanes = max(a.lanes, b.lanes)
        return ir.Binary("and", terms.broadcast(a, lanes), terms.broadcast(b, lanes))


def masked(e: ir.Load, mask: ir.Expr | None) -> ir.Load:
    """The load under a mask; inactive lanes are `other`, or zero."""
    if mask is None:
        return ir.replace(e, mask=None, other=None)
    zero = ir.Lit(0.0 if e.dtype.is_float else False if e.dtype is dtypes.bool_ else 0, e.dtype)
    other = e.other if e.other is not None else terms.broadcast(zero, e.width)
    return ir.replace(e, mask=mask, other=other)

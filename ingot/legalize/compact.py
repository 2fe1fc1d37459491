"""Shrinks an allocation to the box that is accessed in its scope. Used by place_allocs."""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.legalize import boxes
from ingot.legalize.boxes import Span
from ingot.legalize.flow import BufferAccess
from ingot.legalize.ranges import Ranges
from ingot.loops import ir, visit
from ingot.loops.alignment import Align

MAX_EXCESS = 64  # elements by which a dimension may grow; heuristic


def compact(
    buffer: ir.Buffer, body: ir.Stmt, found: list[BufferAccess], ranges: Ranges, align: Align | None
) -> ir.Alloc:
    """alloc Y[128, 128] around Y[6*i … 6*i+5, j]  →  alloc Y[6, 1], indices minus (6*i, j)"""
    spans = [_whole(d) for d in buffer.shape]
    for d, extent in enumerate(buffer.shape):
        spans[d] = _accessed_span(d, extent, found, ranges) or spans[d]
    offsets = tuple(low for low, _ in spans)
    shape = tuple(_extent(span, ranges) for span in spans)
    if align is not None:
        shape = align.shape(shape) or shape
    scope = ir.THREAD if buffer.scope == ir.GLOBAL else buffer.scope
    small = ir.replace(buffer, shape=shape, scope=scope)
    return ir.Alloc(small, _shift(body, small, offsets, ranges))


def _whole(extent: arith.Expr) -> Span:
    return arith.Const(0), extent - 1


def _extent(span: Span, ranges: Ranges) -> arith.Expr:
    return ranges.simplify(span[1] - span[0] + 1)


def _accessed_span(
    d: int, extent: arith.Expr, found: list[BufferAccess], ranges: Ranges
) -> Span | None:
    """The span of dimension `d`; None where it is unknown or not smaller than the dimension."""
    span: Span | None = None
    for access in found:
        inner = {f.var: f for f in access.loops}
        more = boxes.span_of(access.indices[d], inner, ranges)
        span = more if span is None else boxes.hull(span, more, ranges) if more else None
        if span is None:
            return None
    return None if span is None else _with_fixed_size(span, extent, ranges)


def _with_fixed_size(span: Span, whole: arith.Expr, ranges: Ranges) -> Span | None:
    """The span, long enough for every iteration: a size must not depend on a loop variable."""
    size = _extent(span, ranges)
    if arith.free_vars(size) - ranges.sizes or _has_minimum(size):
        upper = ranges.bounds(size).high
        if upper is None:
            return None
        size = arith.Const(upper)
    return (span[0], span[0] + size - 1) if _is_worth_it(size, whole, ranges) else None


def _is_worth_it(size: arith.Expr, whole: arith.Expr, ranges: Ranges) -> bool:
    """A constant tile size beats a dynamic dimension, even one that may be smaller at run time. A
    constant size may also exceed the dimension a little, so that guarded vectors fit entirely."""
    if isinstance(size, arith.Const):
        return not isinstance(whole, arith.Const) or size.value <= whole.value + MAX_EXCESS
    return ranges.is_at_most(size, whole)


def _has_minimum(e: arith.Expr) -> bool:
    return any(isinstance(x, arith.Min | arith.Max) for x in arith.walk(e))


def _shift(
    body: ir.Stmt, small: ir.Buffer, offsets: tuple[arith.Expr, ...], ranges: Ranges
) -> ir.Stmt:
    def moved(indices: tuple[arith.Expr, ...]) -> tuple[arith.Expr, ...]:
        pairs = zip(indices, offsets)
        return tuple(i if o == 0 else ranges.simplify(i - o) for i, o in pairs)

    def on_expr(e: ir.Expr) -> ir.Expr:
        if isinstance(e, ir.Load) and e.buffer.name == small.name:
            return ir.replace(e, buffer=small, indices=moved(e.indices))
        return e

    def box(b: ir.Slice) -> ir.Slice:
        if b.buffer.name != small.name:
            return b
        return ir.replace(b, buffer=small, offsets=moved(b.offsets))

    def on_stmt(s: ir.Stmt) -> ir.Stmt:
        match s:
            case ir.Store() if s.buffer.name == small.name:
                return ir.replace(s, buffer=small, indices=moved(s.indices))
            case ir.Call(args=args):
                return ir.replace(s, args=tuple(box(b) for b in args))
        return s

    return visit.map_stmt(body, on_stmt, on_expr)


def rescope(buffer: ir.Buffer, body: ir.Stmt) -> ir.Alloc:
    """The allocation unchanged, but in thread scope."""
    scope = ir.THREAD if buffer.scope == ir.GLOBAL else buffer.scope
    new = ir.replace(buffer, scope=scope)
    return ir.Alloc(new, body if new == buffer else visit.replace_buffers(body, {new.name: new}))

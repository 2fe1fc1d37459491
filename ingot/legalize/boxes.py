"""Symbolic boxes: the index ranges that an access covers over some loops. Used by place_allocs.

A span is (lowest, highest) in terms of the variables that stay fixed; None means unknown.
"""

from __future__ import annotations

from collections.abc import Mapping

from ingot.arith import expr as arith
from ingot.legalize import terms
from ingot.legalize.ranges import Ranges
from ingot.loops import ir
from ingot.support.stack import segmented

Span = tuple[arith.Expr, arith.Expr]


def span_of(index: arith.Expr, inner: Mapping[str, ir.For], ranges: Ranges) -> Span | None:
    """The range of `index` over the loops `inner`, all other variables fixed."""
    found = _span(ranges.simplify(index), inner, ranges)
    if found is None:
        return None
    return ranges.simplify(found[0]), ranges.simplify(found[1])


@segmented
def _span(e: arith.Expr, inner: Mapping[str, ir.For], ranges: Ranges) -> Span | None:
    if not terms.index_vars(e) & inner.keys() and not arith.opaques(e):
        return e, e
    match e:
        case arith.Var(name=name):
            loop = inner[name]
            low, high = _span(loop.start, inner, ranges), _span(loop.stop, inner, ranges)
            return None if low is None or high is None else (low[0], high[1] - 1)
        case arith.Binary(a=a, b=b):
            x, y = _span(a, inner, ranges), _span(b, inner, ranges)
            return None if x is None or y is None else _combine(e, x, y, ranges)
    return None


def _combine(e: arith.Binary, x: Span, y: Span, ranges: Ranges) -> Span | None:
    match e:
        case arith.Add():
            return x[0] + y[0], x[1] + y[1]
        case arith.Sub():
            return x[0] - y[1], x[1] - y[0]
        case arith.Min():
            return arith.minimum(x[0], y[0]), arith.minimum(x[1], y[1])
        case arith.Max():
            return arith.maximum(x[0], y[0]), arith.maximum(x[1], y[1])
        case arith.Mul():
            return _times(x, y, ranges)
        case arith.FloorDiv() if y[0] == y[1] and ranges.is_positive(y[0]):
            return x[0] // y[0], x[1] // y[0]
        case arith.Mod() if y[0] == y[1] and ranges.is_positive(y[0]):
            return arith.Const(0), y[0] - 1
    return None


def _times(x: Span, y: Span, ranges: Ranges) -> Span | None:
    if x[0] == x[1]:
        x, y = y, x
    if y[0] != y[1]:
        return None
    factor = ranges.bounds(y[0])
    if factor.low is not None and factor.low >= 0:
        return x[0] * y[0], x[1] * y[0]
    if factor.high is not None and factor.high <= 0:
        return x[1] * y[0], x[0] * y[0]
    return None


def hull(a: Span, b: Span, ranges: Ranges) -> Span | None:
    """The union hull of two spans; None where their ends cannot be compared."""
    low = _pick(a[0], b[0], ranges)
    high = _pick(b[1], a[1], ranges)
    if low is None or high is None:
        return None
    return low[0], high[1]


def _pick(small: arith.Expr, large: arith.Expr, ranges: Ranges) -> Span | None:
    """The two in ascending order; None where that is unknown."""
    if ranges.is_at_most(small, large):
        return small, large
    return (large, small) if ranges.is_at_most(large, small) else None


def within(a: Span, b: Span, ranges: Ranges) -> bool:
    return ranges.is_at_most(b[0], a[0]) and ranges.is_at_most(a[1], b[1])

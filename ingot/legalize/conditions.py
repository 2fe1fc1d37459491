"""Comparisons of indices: which always hold, which never do. Used by flatten and simplify_stmts."""

from __future__ import annotations

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.legalize.ranges import Ranges
from ingot.legalize.terms import TRUE
from ingot.loops import ir

FALSE = ir.Lit(False, dtypes.bool_)


def as_index(e: ir.Expr) -> arith.Expr | None:
    match e:
        case ir.Index(expr=i):
            return i
        case ir.Lit(value=value, type=dtypes.i64):
            return arith.Const(int(value))
    return None


def decide(op: str, a: arith.Expr, b: arith.Expr, ranges: Ranges) -> bool | None:
    """True if `a op b` holds for all values of the variables, False if for none, else None."""
    match op:
        case "lt":
            return _order(b - a, 1, ranges)
        case "le":
            return _order(b - a, 0, ranges)
        case "gt":
            return _order(a - b, 1, ranges)
        case "ge":
            return _order(a - b, 0, ranges)
        case "eq" | "ne":
            equal = _equal(a - b, ranges)
            return equal if op == "eq" or equal is None else not equal
    raise ValueError(f"unknown comparison {op!r}")


def _order(gap: arith.Expr, least: int, ranges: Ranges) -> bool | None:
    if ranges.at_least(gap, least):
        return True
    return False if ranges.at_least(-gap, 1 - least) else None


def _equal(gap: arith.Expr, ranges: Ranges) -> bool | None:
    if ranges.simplify(gap) == 0:
        return True
    return False if ranges.at_least(gap, 1) or ranges.at_least(-gap, 1) else None


def fold(e: ir.Expr, ranges: Ranges) -> ir.Expr:
    """Fold comparisons and logic in one node; its children are folded already."""
    match e:
        case ir.Compare(op=op, a=a, b=b):
            left, right = as_index(a), as_index(b)
            if left is None or right is None:
                return e
            known = decide(op, left, right, ranges)
            return e if known is None else (TRUE if known else FALSE)
        case ir.Binary(op="and", a=a, b=b) if e.dtype.is_bool:
            return _logic(a, b, TRUE, FALSE, e)
        case ir.Binary(op="or", a=a, b=b) if e.dtype.is_bool:
            return _logic(a, b, FALSE, TRUE, e)
        case ir.Unary(op="not", a=ir.Lit(value=value, type=dtypes.bool_)):
            return FALSE if value else TRUE
        case ir.Select(cond=ir.Lit(value=value), a=a, b=b):
            return a if value else b
        case ir.Load(mask=ir.Lit(value=value), other=other) if e.width == 1:
            if value:
                return ir.replace(e, mask=None, other=None)
            assert other is not None
            return other
    return e


def _logic(a: ir.Expr, b: ir.Expr, unit: ir.Lit, zero: ir.Lit, whole: ir.Expr) -> ir.Expr:
    if zero in (a, b):
        return zero
    if a == unit:
        return b
    return a if b == unit else whole

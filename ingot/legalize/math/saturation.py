"""Floats to integers of at most 16 bits: the saturating casts that quantisers end with.

    cast(round(v) + cast(z, f32), u8)  →  low byte of (clamp(v, 0 - z, 255 - z) + 1.5 · 2²³) + z

A clamp to integers commutes with rounding, and the addition rounds to nearest even and leaves the
integer in the low bits: two selects, one addition and one truncation for each vector, where a
conversion to bytes has no vector form on most machines. NaN gives 0. Called by expand_math.py.
"""

from __future__ import annotations

from typing import NamedTuple

from ingot import dtypes
from ingot.dtypes import DType
from ingot.legalize.math.code import MANTISSA, Code, V, int_of, magic, rounded, select
from ingot.loops import ir
from ingot.loops.ir import Expr
from ingot.support.stack import segmented

MAX_BITS = 16  # of the integers: sums with a zero point are exact in f32, and below 2²²


class Quantised(NamedTuple):
    """saturate(round(value) + zero) as `dtype`; without `rounds`, the fraction is cut off. `zero`
    is an integer of at most 16 bits, the same in all lanes."""

    value: Expr
    dtype: DType
    rounds: bool
    zero: Expr | None


def quantised(e: Expr) -> Quantised | None:
    """The parts of a saturating cast of f32 or f64 to a short integer."""
    if not isinstance(e, ir.Cast) or e.mode != "saturate" or not _is_short(e.type):
        return None
    if e.a.dtype.name not in MANTISSA:
        return None
    value, zero = e.a, None
    match value:
        case ir.Binary(op="add", a=ir.Unary(op="round") as v, b=b) if _zero_point(b) is not None:
            value, zero = v, _zero_point(b)
    if isinstance(value, ir.Unary) and value.op == "round":
        return Quantised(value.a, e.type, True, zero)
    return Quantised(value, e.type, _is_whole(value), None)


def to_int(q: Quantised, code: Code) -> V:
    """The integer. All operations are those of the float, but a last addition of the zero point."""
    shifted = _clamped(q, code) if q.rounds else rounded("trunc", _clamped(q, code))
    whole = (shifted + magic(shifted.dtype)).bits(int_of(shifted.dtype))
    wide = dtypes.of(f"{'i' if q.dtype.is_signed else 'u'}{max(8, q.dtype.bits)}")
    made = whole.to(wide)
    if q.zero is not None:
        made = made + V(code, converted(q.zero, wide))
    return made.to(q.dtype)


def to_float(q: Quantised, code: Code) -> V:
    """The same value as a float: a quantiser whose reader dequantises it at once."""
    made = rounded("round" if q.rounds else "trunc", _clamped(q, code))
    return made if q.zero is None else made + V(code, converted(q.zero, made.dtype))


def dequantised(e: Expr) -> Expr | None:
    """The operand of a cast from an integer to f32 or f64, if computing it in floats gives the same
    and saves a conversion to a short integer: x, x - y or x + y, one of them just quantised."""
    if not isinstance(e, ir.Cast) or e.type.name not in MANTISSA or not e.a.dtype.is_int:
        return None
    inner = e.a
    _, leaves = summands(inner)
    is_exact = all(_is_short(x.dtype) for x in leaves)
    return inner if is_exact and any(quantised(x) for x in leaves) else None


def summands(e: Expr) -> tuple[str, list[Expr]]:
    """The terms of a sum or difference, as short integers where they are widened ones, and the
    operation on them; empty for a single term."""
    match e:
        case ir.Binary(op="add" | "sub" as op, a=a, b=b) if e.dtype is dtypes.i32:
            return op, [_unwidened(a), _unwidened(b)]
    return "", [_unwidened(e)]


def converted(e: Expr, dtype: DType) -> Expr:
    """A cast; of a broadcast value, before the broadcast."""
    inner, width = (e.a, e.width) if isinstance(e, ir.Broadcast) else (e, None)
    made = inner if inner.dtype is dtype else ir.Cast(inner, dtype)
    return made if width is None else ir.Broadcast(made, width)


def _unwidened(e: Expr) -> Expr:
    """The short integer that a wider one was cast from, of the same value."""
    match e:
        case ir.Cast(a=a, type=dtypes.i32) if _is_short(a.dtype):
            return a
        case ir.Broadcast(a=ir.Cast(a=a, type=dtypes.i32), width=width) if _is_short(a.dtype):
            return ir.Broadcast(a, width)
    return e


def _clamped(q: Quantised, code: Code) -> V:
    """The value between the integers whose sums with the zero point are the type's limits; where it
    is NaN, minus the zero point."""
    x = V(code, code.keep(q.value))
    low, high, none = (x.number(float(n)) for n in (q.dtype.lowest, q.dtype.highest, 0))
    if q.zero is not None:
        zero = V(code, converted(q.zero, x.dtype)).keep()
        low, high, none = ((end - zero).keep() for end in (low, high, none))
    # a comparison with NaN is false: it gives the lowest, which is 0 of an unsigned type
    above = select(x > low, x, low).keep()
    inside = select(above < high, above, high)
    return inside if not q.dtype.is_signed else select(x.is_nan(), none, inside)


def _zero_point(e: Expr) -> Expr | None:
    """The short integer that a float was cast from, one for all lanes."""
    inner = e.a if isinstance(e, ir.Broadcast) else e
    if not isinstance(inner, ir.Cast) or inner.a.lanes != 1 or not _is_short(inner.a.dtype):
        return None
    return ir.Broadcast(inner.a, e.lanes) if isinstance(e, ir.Broadcast) else inner.a


@segmented
def _is_whole(e: Expr) -> bool:
    """Is a float an integer, infinite or NaN?"""
    match e:
        case ir.Unary(op="round" | "floor" | "ceil" | "trunc"):
            return True
        case ir.Cast(a=a):
            return a.dtype.is_int
        case ir.Broadcast(a=a) | ir.Unary(op="neg" | "abs", a=a):
            return _is_whole(a)
        case ir.Binary(op="add" | "sub" | "min" | "max", a=a, b=b):
            return _is_whole(a) and _is_whole(b)
    return False


def _is_short(dtype: DType) -> bool:
    return dtype.is_int and dtype.bits <= MAX_BITS

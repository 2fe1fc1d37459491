"""Converters of element-wise functions that are formulas of others.

In: operands as terms (terms.py). Out: nodes of ops/elementwise.py. Called by the importer.
"""

from __future__ import annotations

import math
from typing import Any

from ingot import dtypes
from ingot.frontends.torch.terms import Term, formula, where

INFINITY = float("inf")


@formula("aten.log10.default")
def log10(x: Term) -> Term:
    return x.op("log2") * math.log10(2)


@formula("aten.erfc.default", "aten.special_erfc.default")
def erfc(x: Term) -> Term:
    return 1.0 - x.op("erf")


@formula("aten.atan2.default")
def atan2(y: Term, x: Term) -> Term:
    """The angle of (x, y): of the quotient, and half a turn on where x is negative."""
    is_back = is_negative(x)
    turn = where(is_negative(y), one(x, -math.pi), one(x, math.pi))
    both_infinite = abs(x).equals(INFINITY) & abs(y).equals(INFINITY)
    diagonal = signed(one(x), x) * signed(one(y), y)
    ratio = where(both_infinite, diagonal, y / x)
    ratio = where(y.equals(0) & ~x.op("isnan"), signed(one(x, 0.0), x) * signed(one(y), y), ratio)
    angle = ratio.op("atan")
    return where(is_back, angle + turn, angle)


def one(like: Term, value: float = 1.0) -> Term:
    return like.lifted(value)


def is_negative(x: Term) -> Term:
    """Whether the sign bit is set, also of a zero."""
    kinds = {dtypes.f32: dtypes.i32, dtypes.f64: dtypes.i64}
    if x.dtype not in kinds:
        return x < 0
    return x.op("bitcast", to=kinds[x.dtype]) < 0


def signed(size: Term, sign: Term) -> Term:
    """The size with the sign of another term."""
    size = abs(size)
    return where(is_negative(sign), -size, size)


@formula("aten.copysign.Tensor", "aten.copysign.Scalar")
def copysign(x: Term, sign: Any) -> Term:
    return signed(x, x.lifted(sign))


@formula("aten.signbit.default", common=True)
def signbit(x: Term) -> Term:
    return is_negative(x) if not x.dtype.is_bool else x ^ x


@formula("aten.hypot.default")
def hypot(a: Term, b: Term) -> Term:
    a, b = abs(a), abs(b)
    large, small = a.op("max", b), a.op("min", b)
    ratio = where(large.equals(0), small, small / large)
    found = large * (ratio * ratio + 1.0).op("sqrt")
    return where(large.equals(INFINITY), large, found)


@formula("aten.logaddexp.default")
def logaddexp(a: Term, b: Term) -> Term:
    large, gap = a.op("max", b), -abs(a - b)
    found = large + gap.op("exp").op("log1p")
    return where(a.equals(b) & abs(a).equals(INFINITY), a, found)


@formula("aten.logaddexp2.default")
def logaddexp2(a: Term, b: Term) -> Term:
    large, gap = a.op("max", b), -abs(a - b)
    found = large + gap.op("exp2").op("log1p") * (1 / math.log(2))
    return where(a.equals(b) & abs(a).equals(INFINITY), a, found)


@formula("aten.xlogy.Tensor", "aten.xlogy.Scalar_Self", "aten.xlogy.Scalar_Other")
def xlogy(x: Any, y: Any) -> Term:
    return product_with_log(x, y, "log")


@formula("aten.special_xlog1py.default", "aten.special_xlog1py.other_scalar")
def xlog1py(x: Any, y: Any) -> Term:
    return product_with_log(x, y, "log1p")


def product_with_log(x: Any, y: Any, log: str) -> Term:
    """x · log(y); 0 where x is 0, NaN where y is."""
    x = x if isinstance(x, Term) else y.lifted(x)
    y = x.lifted(y)
    found = where(x.equals(0), x * 0, x * y.op(log))
    return where(y.op("isnan"), y, found)


@formula("aten.frac.default")
def frac(x: Term) -> Term:
    return x - x.op("trunc")


@formula("aten.deg2rad.default")
def deg2rad(x: Term) -> Term:
    return x * (math.pi / 180)


@formula("aten.rad2deg.default")
def rad2deg(x: Term) -> Term:
    return x * (180 / math.pi)


@formula("aten.sinc.default", "aten.special_sinc.default")
def sinc(x: Term) -> Term:
    angle = x * math.pi
    return where(x.equals(0), one(x), angle.op("sin") / where(x.equals(0), one(x), angle))


@formula("aten.logit.default", "aten.special_logit.default")
def logit(x: Term, eps: float | None = None) -> Term:
    if eps is not None:
        x = x.op("clip", eps, 1 - eps)
    return (x / (1.0 - x)).op("log")


@formula("aten.heaviside.default")
def heaviside(x: Term, at_zero: Term) -> Term:
    return where(x.equals(0), at_zero, where(x < 0, x.lifted(0), x.lifted(1)))


@formula("aten.nan_to_num.default")
def nan_to_num(
    x: Term, nan: float | None = None, high: float | None = None, low: float | None = None
) -> Term:
    if not x.dtype.is_float:
        return x
    largest = 1.7976931348623157e308 if x.dtype is dtypes.f64 else 3.4028234663852886e38
    x = where(x.op("isnan"), one(x, nan or 0.0), x)
    x = where(x.equals(INFINITY), one(x, largest if high is None else high), x)
    return where(x.equals(-INFINITY), one(x, -largest if low is None else low), x)


@formula("aten.lerp.Tensor", "aten.lerp.Scalar")
def lerp(start: Term, end: Term, weight: Any) -> Term:
    """From the end where it is nearer: exact at both."""
    gap, weight = end - start, start.lifted(weight)
    near_end = abs(weight) >= 0.5
    return where(near_end, end - gap * (1 - weight), start + gap * weight)


@formula("aten.addcmul.default")
def addcmul(x: Term, a: Term, b: Term, value: Any = 1) -> Term:
    return x + (a * b if value == 1 else a * b * value)


@formula("aten.addcdiv.default")
def addcdiv(x: Term, a: Term, b: Term, value: Any = 1) -> Term:
    return x + (a / b if value == 1 else a / b * value)


@formula("aten.round.decimals")
def round_decimals(x: Term, decimals: int = 0) -> Term:
    if not x.dtype.is_float or decimals == 0:
        return x.op("round") if x.dtype.is_float else x
    ten = 10.0 ** abs(decimals)
    return (x * ten).op("round") / ten if decimals > 0 else (x / ten).op("round") * ten


@formula("aten.angle.default")
def angle(x: Term) -> Term:
    """Of real numbers: half a turn for negative ones."""
    return where(x.op("isnan"), x, where(x < 0, one(x, math.pi), one(x, 0.0)))

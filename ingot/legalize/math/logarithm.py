"""log, log2, log1p and the inverse hyperbolic functions built on log1p.

x = m · 2^e with m in [√½, √2), f = m - 1. In f32 log(1+f) = f - f²/2 + f³·p(f); in f64, with
s = f / (2+f), log(1+f) = f - (f²/2 - s·(f²/2 + s²·p(s²))). Coefficients: minimax.
"""

from __future__ import annotations

from ingot import dtypes
from ingot.legalize.math.code import V, copy_sign, int_of, polynomial, select

# |error| < 2^-28.3 over [√½ - 1, √2 - 1]
_CUBIC_F32 = (
    0.3333331048488617, -0.2500021755695343, 0.2000242918729782, -0.16656814515590668,
    0.14204032719135284, -0.12588466703891754, 0.12184280902147293, -0.10733064264059067,
    0.04966643452644348,
)  # fmt: skip
# (2·atanh(s) - 2s) / s³ in s², |error| < 2^-58.4 over |s| ≤ 0.1717
_ATANH_F64 = (
    0.6666666666666735, 0.39999999999409325, 0.28571428743697586, 0.22222198427405992,
    0.18183572457138392, 0.15313829057845083, 0.14798294501859974,
)  # fmt: skip
LN2 = {  # ln 2 as a sum; the first term has trailing zeros, so that exponent · term is exact
    "f32": (0.693145751953125, 1.428606765330187e-06),
    "f64": (0.6931471803691238, 1.9082149292705877e-10),
}
LOG2E_F32 = (1.4426950216293335, 1.9259629911266175e-08)  # log2(e) as a sum of two f32
_ROOT_HALF = {"f32": 0x3F3504F3, "f64": 0x3FE6A09E667F3BCD}  # the bits of √½
_MANTISSA = {"f32": 23, "f64": 52}  # stored bits of the mantissa
_TINY = {"f32": 2.0**-126, "f64": 2.0**-1022}  # the smallest normal number


def split(x: V) -> tuple[V, V]:
    """(e, f) with x = 2^e · (1 + f), for positive finite x, subnormal too; e as a float."""
    name, kind = x.dtype.name, int_of(x.dtype)
    scale_bits = _MANTISSA[name] + 1
    is_tiny = (x < _TINY[name]).keep()
    bits = select(is_tiny, x * 2.0**scale_bits, x).bits(kind).keep()
    exponent = ((bits - _ROOT_HALF[name]) >> _MANTISSA[name]).keep()
    m = (bits - (exponent << _MANTISSA[name])).bits(x.dtype)
    whole = _to_float(exponent, x)
    return select(is_tiny, whole - float(scale_bits), whole).keep(), (m - 1.0).keep()


def _to_float(n: V, like: V) -> V:
    """A small integer as a float; through 32 bits, which every vector unit can convert."""
    return n.to(dtypes.i32).to(like.dtype)


def _tail(f: V) -> V:
    """f - log(1 + f), small relative to f."""
    half = (f * f * 0.5).keep()
    if f.dtype is dtypes.f32:
        return half - (f * f) * (f * polynomial(f, _CUBIC_F32))
    s = (f / (f + 2.0)).keep()
    z = (s * s).keep()
    return half - s * (half + z * polynomial(z, _ATANH_F64))


def finish(x: V, result: V, zero_at: float = 0.0) -> V:
    """Special cases: -inf at `zero_at`, where the argument of log is 0; NaN below; inf at inf."""
    inf = float("inf")
    at_zero = select(x.equals(zero_at), -inf, x.number(float("nan")))
    return select(x > zero_at, select(x.equals(inf), x, result), select(x.is_nan(), x, at_zero))


def log(x: V) -> V:
    x = x.keep()
    e, f = split(x)
    high, low = LN2[x.dtype.name]
    return finish(x, e.mul_add(high, f - (_tail(f) - e * low)))


def log2_f64(x: V) -> V:
    """log(1+f) / ln2; f - f²/2 is truncated so that the leading product is exact."""
    x = x.keep()
    e, f = split(x)
    s = (f / (f + 2.0)).keep()
    z = (s * s).keep()
    half = (f * f * 0.5).keep()
    rest = s * (half + z * polynomial(z, _ATANH_F64))
    main = (f - half).keep()
    high = (main.bits(dtypes.u64) & 0xFFFFFFFF00000000).bits(dtypes.f64).keep()
    low = (((f - high) - half) + rest).keep()
    inv_high, inv_low = 1.4426946640014648, 3.768874985636099e-07  # 1/ln2, the first of 21 bits
    big = (high * inv_high).keep()
    small = ((low + high) * inv_low + low * inv_high).keep()
    total = (e + big).keep()
    return finish(x, total + (((e - total) + big) + small))


def log2_f32(x: V) -> V:
    """(f - tail) / ln2, with the rounding error of f / ln2 added back."""
    x = x.keep()
    e, f = split(x)
    high = (f * LOG2E_F32[0]).keep()
    lost = f.mul_add(LOG2E_F32[0], -high)  # 0 where there is no fma
    low = f.mul_add(LOG2E_F32[1], lost)
    return finish(x, e + (high + (low - _tail(f) * LOG2E_F32[0])))


def log1p(x: V) -> V:
    """log u + (x - (u - 1)) / u with u = 1 + x: the second term is the rounding error of u."""
    x = x.keep()
    u = (x + 1.0).keep()
    e, f = split(u)
    lost = select(x > 1.0, 1.0 - (u - x), x - (u - 1.0)) / u
    high, low = LN2[x.dtype.name]
    result = e.mul_add(high, f - (_tail(f) - e.mul_add(low, lost)))
    small = select(abs(x) < 2.0**-54, x, result)  # -0.0 among them
    return finish(x, small, -1.0)


def asinh(x: V) -> V:
    x = x.keep()
    a = abs(x).keep()
    square = (a * a).keep()
    near = log1p(a + square / ((square + 1.0).sqrt() + 1.0))
    return copy_sign(select(a > 2.0**28, log(a) + 0.6931471805599453, near), x)


def acosh(x: V) -> V:
    x = x.keep()
    t = (x - 1.0).keep()
    near = log1p(t + (t * 2.0 + t * t).sqrt())
    inside = select(x > 2.0**28, log(x) + 0.6931471805599453, near)
    return select(x < 1.0, float("nan"), inside)


def atanh(x: V) -> V:
    x = x.keep()
    a = abs(x).keep()
    return copy_sign(log1p(a * 2.0 / (1.0 - a)) * 0.5, x)

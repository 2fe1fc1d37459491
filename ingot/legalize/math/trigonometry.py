"""sin, cos, tan and the inverse functions; except for sin and cos, f32 is computed in f64.

|x| = n·π/2 + r by reduction.py, for every finite x; in f64 r is a sum of two floats. The sign is
applied at the end. Coefficients: minimax, as in exponential.
"""

from __future__ import annotations

from ingot import dtypes
from ingot.legalize.math.code import V, copy_sign, polynomial, select, uint_of
from ingot.legalize.math.reduction import HALF_PI, reduce_f32, reduce_f64

# (sin r - r) / r³ and (cos r - 1 + r²/2) / r⁴ in r², |error| < 2^-57.9 and 2^-64
_SIN_F64 = (
    -0.16666666666666632, 0.008333333333322455, -0.00019841269829813418,
    2.7557313687567587e-06, -2.5050756711716164e-08, 1.5896681563460234e-10,
)  # fmt: skip
_COS_F64 = (
    0.0416666666666666, -0.0013888888888874441, 2.4801587289636304e-05,
    -2.7557314387459364e-07, 2.0875727056150667e-09, -1.1359802253368482e-11,
)  # fmt: skip
# over |r| ≤ 0.8, |error · r³| < 2^-27.8 of sin r, |error · r⁴| < 2^-33
_SIN_F32 = (-0.16666653752326965, 0.008332070894539356, -0.0001950306905200705)
_COS_F32 = (0.04166664555668831, -0.0013887251261621714, 2.4424924049526453e-05)
# (atan z - z) / z³ in z², |error| < 2^-63.8 over |z| ≤ tan(π/8)
_ATAN = (
    -0.33333333333333326, 0.19999999999997095, -0.1428571428531639, 0.11111111083744173,
    -0.09090907985765623, 0.07692279197721474, -0.06666174614076979, 0.05876515583409209,
    -0.05215174179471077, 0.0449052988099058, -0.03317401209381749, 0.01489269684316036,
)  # fmt: skip


def _sin_cos_f64(r: V, low: V) -> tuple[V, V]:
    z = (r * r).keep()
    half = (z * 0.5).keep()
    sin = r + ((r * z) * polynomial(z, _SIN_F64) + low * (1.0 - half))
    one = (1.0 - half).keep()
    cos = one + (((1.0 - one) - half) + (z * z * polynomial(z, _COS_F64) - r * low))
    return sin.keep(), cos.keep()


def _sin_cos_f32(r: V) -> tuple[V, V]:
    z = (r * r).keep()
    sin = (r * z).mul_add(polynomial(z, _SIN_F32), r)
    cos = z.mul_add(z.mul_add(polynomial(z, _COS_F32), -0.5), 1.0)
    return sin.keep(), cos.keep()


def _reduced(x: V) -> tuple[V, V, V]:
    """(n, sin r, cos r) with |x| = n·π/2 + r."""
    if x.dtype is dtypes.f32:
        n, r = reduce_f32(abs(x).keep())
        return n, *_sin_cos_f32(r)
    n, r, low = reduce_f64(abs(x).keep())
    return n, *_sin_cos_f64(r, low)


def _quarter(sin: V, cos: V, n: V) -> V:
    """|sin| of n quarter turns plus r; bit 1 of n negates it."""
    return select((n & 1).differs(0), cos, sin)


def _flip(value: V, n: V, sign: V | None = None) -> V:
    """-value where bit 1 of n is set; negated again where `sign` is negative or -0.0."""
    kind, top = uint_of(value.dtype), value.dtype.bits - 1
    by = n.bits(kind) << (top - 1)
    by = (by if sign is None else by ^ sign.bits(kind)) & (1 << top)
    return (value.bits(kind) ^ by).bits(value.dtype)


def sin(x: V) -> V:
    x = x.keep()
    n, sine, cosine = _reduced(x)
    return _flip(_quarter(sine, cosine, n), n, x)


def cos(x: V) -> V:
    n, sine, cosine = _reduced(x.keep())
    n = (n + 1).keep()
    return _flip(_quarter(sine, cosine, n), n)


def tan(x: V) -> V:
    x = x.keep()
    return _quotient(*_reduced(x), x)


def tan_by_f64(x: V) -> V:
    """For f32 values held as f64."""
    x = x.keep()
    n, r = reduce_f32(abs(x).keep())
    return _quotient(n, *_sin_cos_f64(r, r.number(0.0)), x)


def _quotient(n: V, sine: V, cosine: V, sign: V) -> V:
    is_odd = (n & 1).differs(0).keep()
    value = select(is_odd, -cosine, sine) / select(is_odd, sine, cosine)
    return _flip(value, n.number(0), sign)


def atan(x: V) -> V:
    """|x| is reduced to |z| ≤ tan(π/8) by -1/x or (x-1)/(x+1); π/2 or π/4 is added."""
    x = x.keep()
    a = abs(x).keep()
    is_large, is_middle = (a > 2.414213562373095).keep(), (a > 0.41421356237309503).keep()
    top = select(is_large, -1.0, select(is_middle, a - 1.0, a))
    bottom = select(is_large, a, select(is_middle, a + 1.0, 1.0))
    z = (top / bottom).keep()
    square = (z * z).keep()
    small = (z * square) * polynomial(square, _ATAN)
    high, low = HALF_PI[0], HALF_PI[1]
    zero = x.number(0.0)
    base = select(is_large, high, select(is_middle, high / 2, zero))
    correction = select(is_large, low, select(is_middle, low / 2, zero))
    return copy_sign(base + (z + (small + correction)), x)


def asin(x: V) -> V:
    x = x.keep()
    return atan(x / ((1.0 - x) * (1.0 + x)).sqrt())


def acos(x: V) -> V:
    x = x.keep()
    return atan(((1.0 - x) / (1.0 + x)).sqrt()) * 2.0

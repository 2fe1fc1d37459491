"""sin, cos, tan and the inverse functions, in f64; f32 goes through f64.

x = n·π/2 + r with |r| ≤ π/4, r as a sum of two floats: π/2 is held in three, so the reduction is
good while n is exact, |x| < 2**51. Beyond, results stay within [-1, 1] and mean nothing.
Coefficients: minimax, as in exponential.
"""

from __future__ import annotations

from ingot.legalize.math.code import (
    V,
    choose,
    copy_sign,
    fast_two_sum,
    nearest,
    polynomial,
    two_product,
    two_sum,
)

_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
_TWO_OVER_PI = 0.6366197723675814
# (sin r - r) / r³ and (cos r - 1 + r²/2) / r⁴ in r², |error| < 2^-57.9 and 2^-64
_SIN = (
    -0.16666666666666632, 0.008333333333322455, -0.00019841269829813418,
    2.7557313687567587e-06, -2.5050756711716164e-08, 1.5896681563460234e-10,
)  # fmt: skip
_COS = (
    0.0416666666666666, -0.0013888888888874441, 2.4801587289636304e-05,
    -2.7557314387459364e-07, 2.0875727056150667e-09, -1.1359802253368482e-11,
)  # fmt: skip
# (atan z - z) / z³ in z², |error| < 2^-63.8 over |z| ≤ tan(π/8)
_ATAN = (
    -0.33333333333333326, 0.19999999999997095, -0.1428571428531639, 0.11111111083744173,
    -0.09090907985765623, 0.07692279197721474, -0.06666174614076979, 0.05876515583409209,
    -0.05215174179471077, 0.0449052988099058, -0.03317401209381749, 0.01489269684316036,
)  # fmt: skip


def _reduce(x: V) -> tuple[V, V, V]:
    """(n, high, low): the quarter turns as an integer, and what is left as a sum."""
    whole, n = nearest(x * _TWO_OVER_PI)
    product, error = two_product(whole, x.number(_HALF_PI[0]))
    high, low = two_sum((x - product).keep(), -error)
    product, error = two_product(whole, x.number(_HALF_PI[1]))
    high, more = two_sum(high, -product)
    rest = ((low + more) - error) - whole * _HALF_PI[2]
    high, low = fast_two_sum(high, rest.keep())
    return n, *_bounded(high, low)


def _bounded(r: V, low: V) -> tuple[V, V]:
    """A reduction that had too few digits must not leave the polynomials' range."""
    below = choose(r > 0.786, 0.786, r).keep()
    return choose(below < -0.786, -0.786, below).keep(), choose(abs(low) < 1e-9, low, 0.0)


def _sin_cos(r: V, low: V) -> tuple[V, V]:
    z = (r * r).keep()
    half = (z * 0.5).keep()
    sin = r + ((r * z) * polynomial(z, _SIN) + low * (1.0 - half))
    one = (1.0 - half).keep()
    cos = one + (((1.0 - one) - half) + (z * z * polynomial(z, _COS) - r * low))
    return sin.keep(), cos.keep()


def _quarter(sin: V, cos: V, n: V) -> V:
    """sin of n quarter turns and a rest."""
    value = choose((n & 1).differs(0), cos, sin).keep()
    return choose((n & 2).differs(0), -value, value)


def sin(x: V) -> V:
    x = x.keep()
    n, r, low = _reduce(x)
    return choose(x.equals(0.0), x, _quarter(*_sin_cos(r, low), n))  # -0.0


def cos(x: V) -> V:
    n, r, low = _reduce(x.keep())
    return _quarter(*_sin_cos(r, low), (n + 1).keep())


def tan(x: V) -> V:
    x = x.keep()
    n, r, low = _reduce(x)
    sine, cosine = _sin_cos(r, low)
    is_odd = (n & 1).differs(0).keep()
    value = choose(is_odd, -cosine, sine) / choose(is_odd, sine, cosine)
    return choose(x.equals(0.0), x, value)


def atan(x: V) -> V:
    """|x| is brought to |z| ≤ tan(π/8) by -1/x or (x-1)/(x+1), with π/2 or π/4 to add."""
    x = x.keep()
    a = abs(x).keep()
    is_large, is_middle = (a > 2.414213562373095).keep(), (a > 0.41421356237309503).keep()
    top = choose(is_large, -1.0, choose(is_middle, a - 1.0, a))
    bottom = choose(is_large, a, choose(is_middle, a + 1.0, 1.0))
    z = (top / bottom).keep()
    square = (z * z).keep()
    small = (z * square) * polynomial(square, _ATAN)
    high, low = _HALF_PI[0], _HALF_PI[1]
    zero = x.number(0.0)
    base = choose(is_large, high, choose(is_middle, high / 2, zero))
    correction = choose(is_large, low, choose(is_middle, low / 2, zero))
    return copy_sign(base + (z + (small + correction)), x)


def asin(x: V) -> V:
    x = x.keep()
    return atan(x / ((1.0 - x) * (1.0 + x)).sqrt())


def acos(x: V) -> V:
    x = x.keep()
    return atan(((1.0 - x) / (1.0 + x)).sqrt()) * 2.0

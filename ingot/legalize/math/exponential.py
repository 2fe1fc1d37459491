"""exp, exp2, expm1, sigmoid: x = n·ln2 + r with |r| ≤ ln2/2, a polynomial in r, then · 2**n.

Coefficients: minimax (Remez exchange in 50 digits, weighted for relative error), rounded to the
type. ln2 is split in two so that n · high is exact.
"""

from __future__ import annotations

from typing import NamedTuple

from ingot.legalize.math.code import (
    BIAS,
    MANTISSA,
    V,
    copy_sign,
    estrin,
    from_magic,
    halves,
    int_of,
    magic,
    nearest,
    polynomial,
    power_of_two,
    scale,
    select,
)


class _Exp(NamedTuple):
    low: float  # below, the result is 0
    high: float  # above, it is infinity
    ln2_high: float
    ln2_low: float
    cubic: tuple[float, ...]  # q of e^r = 1 + r + r²/2 + r³·q(r)
    two: tuple[float, ...]  # g of 2^r = 1 + r·g(r)
    min_power: float  # 2**x is 0 below
    max_power: float
    tiny_expm1: float  # expm1 is -1 below


LOG2E = 1.4426950408889634  # log2(e), rounded to f64

_EXP = {
    "f32": _Exp(
        -104.0, 89.0, 0.693145751953125, 1.428606765330187e-06,
        # |error| < 2^-28.1
        (0.1666651964187622, 0.041666384786367416, 0.008368930779397488, 0.0013942290097475052),
        # |error| < 2^-25.9
        (0.6931471824645996, 0.24022650718688965, 0.05550327152013779, 0.00961800292134285,
         0.0013400501338765025, 0.00015476577391382307),
        -151.0, 129.0, -18.0,
    ),
    "f64": _Exp(
        -746.0, 710.0, 0.6931471803691238, 1.9082149292705877e-10,
        # |error| < 2^-60.7
        (0.16666666666666685, 0.0416666666666667, 0.008333333333316513, 0.001388888888886457,
         0.0001984126989771122, 2.4801587366313463e-05, 2.755723351890513e-06,
         2.75572376452992e-07, 2.511250752247988e-08, 2.092599352507283e-09),
        # |error| < 2^-56
        (0.6931471805599453, 0.24022650695910072, 0.0555041086648217, 0.009618129107628496,
         0.0013333558146389974, 0.00015403530393340908, 1.5252733856735633e-05,
         1.3215486833250672e-06, 1.0178050981634388e-07, 7.054888168693641e-09,
         4.4567107687580105e-10, 2.5741932773246408e-11),
        -1076.0, 1025.0, -38.0,
    ),
}  # fmt: skip


POWER_F32 = _EXP["f32"].two


def clamp(x: V, low: float, high: float) -> V:
    """x within low … high; NaN stays NaN, since it compares false."""
    below = select(x > high, high, x).keep()
    return select(below < low, low, below).keep()


def reduce(x: V) -> tuple[V, V]:
    """(n, r) with x = n·ln2 + r; `x` is within the range of the tables."""
    t = _EXP[x.dtype.name]
    whole, n = from_magic(x.mul_add(LOG2E, magic(x.dtype)).keep())
    r = whole.mul_add(-t.ln2_low, whole.mul_add(-t.ln2_high, x))
    return n, r.keep()


def above_one(r: V) -> V:
    """e^r - 1 for |r| ≤ ln2/2."""
    q = polynomial(r, _EXP[r.dtype.name].cubic)
    square = (r * r).keep()
    return square.mul_add(r.mul_add(q, 0.5), r)


def exp(x: V) -> V:
    return exp_by_fourths(x) if x.dtype.bits == 32 else exp_by_halves(x)


# e^r = 1 + r + r²·q(r) for |r| ≤ ln2: |error| < 2^-26.1
_WIDE_EXP = (
    0.5000003576278687, 0.16666613519191742, 0.04166126996278763,
    0.008336103521287441, 0.0014104469446465373, 0.00019611598690971732,
)  # fmt: skip
_FAR_BELOW = -176.0  # rounds to -127 · ln4


def exp_by_fourths(x: V) -> V:
    """e^x = 4^n · e^r, in few operations: it is the hottest loop of a softmax.

    4^n = 2^n · 2^n has two equal factors. Each is one shift of the sum that rounds x / ln4, whose
    low bits are n plus the exponent's bias. Very negative inputs (masked scores) are clamped to
    n = -bias: then the factors are zero, and no product underflows, which takes about 30 cycles.
    """
    t = _EXP["f32"]
    x = clamp(x.keep(), _FAR_BELOW, t.high)
    shift = magic(x.dtype) + BIAS["f32"]
    shifted = x.mul_add(LOG2E / 2, shift).keep()
    whole = (shifted - shift).keep()
    r = whole.mul_add(-2 * t.ln2_low, whole.mul_add(-2 * t.ln2_high, x)).keep()
    square = (r * r).keep()
    p = square.mul_add(estrin(r, square, _WIDE_EXP), r)
    root = (shifted.bits(int_of(x.dtype)) << MANTISSA["f32"]).bits(x.dtype).keep()
    return p.mul_add(root, root) * root  # (1 + p) · root, rounded once


def exp_by_halves(x: V) -> V:
    t = _EXP[x.dtype.name]
    x = x.keep()
    is_zero = (x < t.low).keep()
    n, r = reduce(select(is_zero, 0.0, select(x > t.high, t.high, x)).keep())
    square = (r * r).keep()
    p = square.mul_add(estrin(r, square, (0.5, *t.cubic)), r)
    half, rest = halves(n, x.dtype)
    # (1 + p) · half, rounded once
    return select(is_zero, 0.0, p.mul_add(half, half) * rest)


def exp_small(x: V) -> V:
    """exp where the result is a normal number: one multiplication less."""
    n, r = reduce(x.keep())
    return (above_one(r) + 1.0) * power_of_two(n, x.dtype)


def exp2(x: V) -> V:
    t = _EXP[x.dtype.name]
    x = clamp(x.keep(), t.min_power, t.max_power)
    whole, n = nearest(x)
    r = (x - whole).keep()
    return scale(r.mul_add(polynomial(r, t.two), 1.0), n)


def expm1(x: V) -> V:
    """2^n · ((e^r - 1) + (1 - 2^-n)): the sum is exact but for one rounding."""
    t = _EXP[x.dtype.name]
    x = x.keep()
    n, r = reduce(clamp(x, t.tiny_expm1, t.high))
    below = power_of_two(-_at_most(n, 1000 if x.dtype.bits == 64 else 120), x.dtype)
    result = scale(above_one(r) + (1.0 - below), n)
    return select(x.equals(0.0), x, result)  # -0.0


def _at_most(n: V, limit: int) -> V:
    return select(n > limit, limit, n)


def sigmoid(x: V) -> V:
    return sigmoid_by_sum(x) if x.dtype.bits == 32 else sigmoid_by_halves(x)


_RAISED = 24  # powers of two from 2^-150 on, times this power of two, are normal numbers


def sigmoid_by_sum(x: V) -> V:
    """1 / (1 + e^-x) with e^-x = 2^-n · (1 + p) is 2^n / (2^n + 1 + p).

    2^n + 1 is exact where p is significant, else its rounding error is added to p. So sum and
    quotient round once each, and the result once more where it is subnormal. Beyond 20 it is 1.
    """
    t = _EXP["f32"]
    x = clamp(x.keep(), t.low, 20.0)
    shift = magic(x.dtype) + (BIAS["f32"] + _RAISED)
    shifted = x.mul_add(LOG2E, shift).keep()
    whole = (shifted - shift).keep()
    r = whole.mul_add(t.ln2_low, whole.mul_add(t.ln2_high, -x)).keep()
    square = (r * r).keep()
    p = square.mul_add(estrin(r, square, (0.5, *t.cubic)), r)
    raised = (shifted.bits(int_of(x.dtype)) << MANTISSA["f32"]).bits(x.dtype).keep()
    power = (raised * 2.0**-_RAISED).keep()
    near = (power + 1.0).keep()
    return raised / (near + (p + (power - (near - 1.0)))) * 2.0**-_RAISED


def sigmoid_by_halves(x: V) -> V:
    """With e = exp(-|x|) ≤ 1 nothing overflows, and small results keep their precision.

    Exponential, sum and quotient round once each; the first two errors are known and compensated.
    """
    x = x.keep()
    t = _EXP[x.dtype.name]
    n, r = reduce(clamp(-abs(x), t.low, t.high))
    p = above_one(r).keep()
    near = (p + 1.0).keep()
    e = scale(near, n).keep()
    lost = ((p - (near - 1.0)) * (2.0 - near)).keep()  # relative to e; 2 - near is about 1 / near
    bottom = (e + 1.0).keep()
    bottom_lost = e - (bottom - 1.0)
    is_left = (x < 0.0).keep()
    q = (select(is_left, e, 1.0) / bottom).keep()
    inverse = select(is_left, 1.0 - q, q)
    error = select(is_left, lost, 0.0) - e.mul_add(lost, bottom_lost) * inverse
    return q.mul_add(error, q)


def tanh_by_expm1(x: V) -> V:
    """tanh |x| = m / (m + 2) with m = expm1(2|x|)."""
    x = x.keep()
    size = abs(x)
    m = expm1(select(size > 40.0, 40.0, size) * 2.0).keep()
    return copy_sign(m / (m + 2.0), x)


def sinh(x: V) -> V:
    """(m + m / (m + 1)) / 2 with m = expm1|x|; in halves where that would overflow."""
    x = x.keep()
    size = abs(x).keep()
    m = expm1(size).keep()
    small = (m + m / (m + 1.0)) * 0.5
    return copy_sign(select(size > 22.0, _half_exp(size), small), x)


def cosh(x: V) -> V:
    size = abs(x).keep()
    e = exp(size).keep()
    return select(size > 22.0, _half_exp(size), (e + 1.0 / e) * 0.5)


def _half_exp(size: V) -> V:
    """exp(size) / 2 without intermediate overflow."""
    root = exp(size * 0.5).keep()
    return (root * 0.5) * root

"""pow with C99's special cases, and fmod, which is exact.

pow(x, y) = exp(y · log|x|). In f64 the logarithm is a sum of two floats, since y makes its error
up to 700 times larger; in f32 both functions are computed in f64, as precisely as f32 needs.
Coefficients: minimax, as in exponential.
"""

from __future__ import annotations

from collections.abc import Callable

from ingot import dtypes
from ingot.legalize.math.code import (
    V,
    copy_sign,
    fast_two_sum,
    nearest,
    polynomial,
    power_of_two,
    scale,
    select,
    two_product,
    two_sum,
)
from ingot.legalize.math.exponential import above_one, clamp, reduce
from ingot.legalize.math.logarithm import split
from ingot.loops import ir

INF, NAN = float("inf"), float("nan")
_LN2 = (0.6931471805598903, 5.497923018708371e-14)  # the first has 42 bits: · exponent is exact
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)  # 2/3 as a sum of two f64
# (2·atanh(s) - 2s - 2/3·s³) / s⁵ in s², |error · s⁴| < 2^-72 over |s| ≤ 0.1717
_QUINTIC = (
    0.39999999999999974, 0.28571428571447044, 0.22222222217070156, 0.18181818927099144,
    0.15384553026452757, 0.1333646419289455, 0.11671862289969528, 0.12013438644799895,
)  # fmt: skip
# log2(1 + f) / s in s² over |s| ≤ 0.1717, and 2^r over |r| ≤ ½, |relative error| < 2^-45 and 2^-40
_LOG2 = (
    2.8853900817778495, 0.9617966941147226, 0.5770779419283363, 0.41220929975507065,
    0.3199036300137642, 0.2829313370417974,
)  # fmt: skip
_EXP2 = (
    0.9999999999997623, 0.6931471805465144, 0.2402265069888032, 0.05550410939341089,
    0.00961812854287041, 0.0013333452062791777, 0.00015403851744514194,
    1.530973729473456e-05, 1.317585882142459e-06,
)  # fmt: skip


def pow_f64(x: V, y: V) -> V:
    return _with_special_cases(x.keep(), y.keep(), _precise)


def pow_f32(x: V, y: V) -> V:
    return _with_special_cases(x.keep(), y.keep(), _short)


def _short(a: V, y: V) -> V:
    """2^(y · log2 a) to about 2^-38; log2 (1 + f) = s · p(s²) with s = f / (2 + f)."""
    e, f = (part.to(dtypes.f64).keep() for part in split(a))
    s = (f / (f + 2.0)).keep()
    log2 = s.mul_add(polynomial((s * s).keep(), _LOG2), e)
    y = clamp(y.to(dtypes.f64).keep(), -1e40, 1e40)  # infinity · log 1 would be NaN
    t = clamp((y * log2).keep(), -300.0, 300.0)
    whole, n = nearest(t)
    r = (t - whole).keep()
    return (polynomial(r, _EXP2) * power_of_two(n, dtypes.f64)).to(dtypes.f32)


def _with_special_cases(x: V, y: V, core: Callable[[V, V], V]) -> V:
    a = abs(x).keep()
    grows = (y > 0.0).keep()
    is_whole = y.trunc().equals(y)  # infinity is, and even
    half = (y * 0.5).keep()
    is_odd = is_whole & half.trunc().differs(half)
    at_inf = select(grows, y.number(INF), 0.0)
    at_zero = select(grows, y.number(0.0), INF)
    size = select(a.equals(0.0), at_zero, select(a.equals(INF), at_inf, core(a, y)))
    signed = select(is_odd, copy_sign(size, x), size)
    is_complex = (x < 0.0) & a.differs(INF) & ~is_whole
    real = select(is_complex, NAN, signed)
    known = select(x.is_nan() | y.is_nan(), x + y, real)
    return select(y.equals(0.0) | x.equals(1.0), 1.0, known)


def _precise(a: V, y: V) -> V:
    log_high, log_low = _log_pair(a)
    y = clamp(y, -1e20, 1e20)  # far beyond what any base but 1 needs to leave the range
    high, error = two_product(y, log_high)
    low = y * log_low + error
    low = select(abs(high) > 800.0, 0.0, low)
    n, r = reduce(clamp(high, -800.0, 800.0))
    return scale(above_one((r + low).keep()) + 1.0, n)


def _log_pair(a: V) -> tuple[V, V]:
    """log a as a sum of two floats, to about 2^-67."""
    e, f = split(a)
    bottom, bottom_low = fast_two_sum(a.number(2.0), f)
    s = (f / bottom).keep()
    product, error = two_product(s, bottom)
    s_low = ((((f - product) - error) - s * bottom_low) / bottom).keep()
    z, z_error = two_product(s, s)
    z_low = s.mul_add(s_low * 2.0, z_error).keep()
    cube, cube_error = two_product(s, z)
    cube_low = cube_error + (s * z_low + s_low * z)
    third, third_error = two_product(cube, a.number(_TWO_THIRDS[0]))
    third_low = third_error + (cube_low * _TWO_THIRDS[0] + cube * _TWO_THIRDS[1])
    fifth = (cube * z) * polynomial(z, _QUINTIC)
    total, low = two_sum(e * _LN2[0], s * 2.0)
    total, more = fast_two_sum(total, third)
    rest = (low + more) + ((s_low * 2.0 + third_low) + (fifth + e * _LN2[1]))
    return fast_two_sum(total, rest.keep())


def fmod_by_f64(x: V, y: V) -> V:
    """For f32 values held as f64: quotients of 29 bits at a time, so that every product is exact.

    The exponents of two f32 differ by at most 277, which ten such divisions cover.
    """
    x, y = x.keep(), y.keep()
    rest, b = abs(x).keep(), abs(y).keep()
    for step in reversed(range(10)):
        by = (b * 2.0 ** (29 * step)).keep()
        rest = (rest - (rest / by).trunc() * by).keep()
        rest = select(rest < 0.0, rest + by, rest).keep()  # the quotient was rounded up
    return _fmod_ends(x, y, rest)


def _fmod_ends(x: V, y: V, rest: V) -> V:
    """fmod(x, inf) is x; fmod(inf, y) and fmod(x, 0) are NaN, as the arithmetic has it."""
    is_finite = abs(x) < INF
    return select(abs(y).equals(INF) & is_finite, x, copy_sign(rest, x))


def fmod_f64(x: V, y: V) -> V:
    """A loop: each iteration reduces the exponent difference, at most 2098, by up to 51."""
    x, y = x.keep(), y.keep()
    code, lanes = x.code, x.e.lanes
    b = abs(y).keep()
    is_proper = ((abs(x) < INF) & (b > 0.0) & (b < INF)).keep()
    buffer = ir.Buffer(code.fresh("rest"), dtypes.f64, (ir.arith.Const(lanes),), ir.THREAD)
    at = (ir.arith.Const(0),)
    rest = ir.Load(buffer, at, lanes)
    start = ir.Store(buffer, at, select(is_proper, abs(x), 0.0).e)
    more = ir.Binary("and", ir.Compare("ge", rest, b.e), is_proper.e)
    loop = ir.While(more if lanes == 1 else ir.LaneReduce("or", more), _fmod_step(rest, b))
    code.wrappers.append(lambda body: ir.Alloc(buffer, ir.seq(start, loop, body)))
    result = V(code, rest).keep()
    return _fmod_ends(x, y, select(is_proper, result, NAN))


def _fmod_step(rest: ir.Load, b: V) -> ir.Stmt:
    """rest := rest mod (b · 2^k), with k such that the quotient has at most 52 bits."""
    code = b.code.nested()
    r = V(code, rest).keep()
    divisor = V(code, b.e)
    gap = (split(r)[0] - split(divisor)[0] - 51.0).keep()
    k = select(gap > 0.0, gap, 0.0).to(dtypes.i64).keep()
    by = scale(divisor, k).keep()
    quotient = (r / by).trunc().keep()
    down = select(r > 2.0**900, 2.0**-60, r.number(1.0)).keep()  # Veltkamp's halves overflow there
    small, small_by = (r * down).keep(), by * down
    product, error = two_product(quotient, small_by)
    left = (((small - product) - error) / down).keep()
    new = select(left < 0.0, left + by, left)
    return code.wrap(ir.Store(rest.buffer, rest.indices, select(r >= divisor, new, r).e))

"""Arguments of sin, cos and tan: a = n·π/2 + r with |r| at most about π/4, for every finite a ≥ 0.

Near: Cody and Waite's reduction; n·π/2 is subtracted in several terms, each product exact or its
error known. Far, in a branch that vectors without a large lane skip: Payne and Hanek's reduction.
With a = M·2^e, only those bits of 2/π matter whose product with M·2^e is neither a multiple of 4
nor too small; a window of them, times M, in 32-bit limbs, is the result as a fixed-point number. n
is correct modulo 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

from ingot import dtypes
from ingot.legalize.math.code import (
    Code,
    V,
    fast_two_sum,
    int_of,
    nearest,
    rarely,
    select,
    two_product,
    two_sum,
    uint_of,
)

TWO_OVER_PI = 0.6366197723675814  # 2/π, rounded to f64
# π/2 as a sum of three f64
HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
_DIGITS = (  # of 2/π after the point, in hexadecimal
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a42"
    "4dd2e006492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991"
    "d639835339f49c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09"
    "b74f463f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046"
)
# 32 bits each; the zeros are for arguments whose window begins before the point
_WORDS = (0, *(int(_DIGITS[i : i + 8], 16) for i in range(0, len(_DIGITS), 8)))
_LIMB = 0xFFFFFFFF  # mask of a 32-bit limb


class _Near(NamedTuple):
    limit: float
    half_pi: tuple[float, ...]


# n times each term is exact, or is fused with the subtraction, which then is exact.
_NEAR_WIDE = _Near(2.0**27, (1.5707963109016418, 1.5893254712295857e-08, 6.123233995736765e-17))
_NEAR_FUSED = _Near(2.0**17, (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15))
_NEAR_PLAIN = _Near(
    2.0**13, (1.5703125, 0.0004837512969970703, 7.549533620476723e-08, 2.5633440682570896e-12)
)
_LIMIT_F64 = 2.0**30


class _Far(NamedTuple):
    """Sizes of the fixed-point product. The window's error, at most M units of its last bit, and
    the limbs kept leave all digits of the closest approach of any float to a multiple of π/2."""

    mantissa: int
    spare: int  # low bits of it that are zero
    bias: int  # the window begins at bit (exponent field - bias) of _WORDS
    window: int  # limbs
    kept: int


_FAR_F32, _FAR_WIDE = _Far(23, 0, 120, 3, 2), _Far(52, 29, 1016, 3, 2)
_FAR_F64 = _Far(52, 0, 1045, 6, 4)


def reduce_f32(a: V) -> tuple[V, V]:
    """(n, r): the quarter turns as an integer, and the remainder; `a` is an f32, maybe as f64."""
    is_wide = a.dtype is dtypes.f64
    near = _NEAR_WIDE if is_wide else _NEAR_FUSED if a.code.has_fma else _NEAR_PLAIN
    whole, n = nearest(a * TWO_OVER_PI)
    r = a
    for term in near.half_pi:
        r = whole.mul_add(-term, r)

    def far(code: Code) -> tuple[V, V]:
        x = a.inside(code)
        n, limbs = _quarters(x, _FAR_WIDE if is_wide else _FAR_F32)
        turns = _signed(limbs[0]) * 2.0**-30 + _small(limbs[1]) * 2.0**-62
        rest = (turns * HALF_PI[0]).to(x.dtype) + x * 0.0  # infinity: NaN
        return n.to(int_of(x.dtype)), rest

    count, rest = rarely(a >= near.limit, (n, r), far)
    return count, rest


def reduce_f64(a: V) -> tuple[V, V, V]:
    """(n, high, low): the quarter turns as i64, and the remainder as a sum of two floats."""
    whole, n = nearest(a * TWO_OVER_PI)
    product, error = two_product(whole, a.number(HALF_PI[0]))
    high, low = two_sum((a - product).keep(), -error)
    product, error = two_product(whole, a.number(HALF_PI[1]))
    high, more = two_sum(high, -product)
    rest = ((low + more) - error) - whole * HALF_PI[2]
    near = n, *fast_two_sum(high, rest.keep())

    def far(code: Code) -> tuple[V, V, V]:
        x = a.inside(code)
        n, limbs = _quarters(x, _FAR_F64)
        turns, turns_low = _sum_of(limbs)
        high, error = two_product(turns, x.number(HALF_PI[0]))
        low = error + (turns * HALF_PI[1] + turns_low * HALF_PI[0])
        return n.to(dtypes.i64), high + x * 0.0, low  # infinity: NaN

    count, large, small = rarely(a >= _LIMIT_F64, near, far)
    return count, large, small


def _sum_of(limbs: Sequence[V]) -> tuple[V, V]:
    """The quarter turn's fraction as a sum; the first limb is signed and may cancel the others."""
    first, second = _signed(limbs[0]) * 2.0**-30, _small(limbs[1]) * 2.0**-62
    high, low = fast_two_sum(first.keep(), second.keep())
    high, more = two_sum(high, (_small(limbs[2]) * 2.0**-94).keep())
    return fast_two_sum(high, ((low + more) + _small(limbs[3]) * 2.0**-126).keep())


def _quarters(a: V, far: _Far) -> tuple[V, list[V]]:
    """(n, limbs): quarter turns rounded to nearest, and the fraction that remains.

    The first limb counts 2^-30 of a quarter turn, from -2^29, kept with 2^29 added; the next limbs
    go on from there.
    """
    raw = a.bits(uint_of(a.dtype)).to(dtypes.u64).keep()
    position = ((raw >> far.mantissa) - far.bias).keep()
    one = 1 << far.mantissa
    mantissa = (((raw & (one - 1)) | one) >> far.spare).keep()
    factors = _limbs_of(mantissa, far.mantissa + 1 - far.spare)
    limbs = _product(factors, _window(position, far.window), far.kept)
    first = (limbs[0] + (1 << 29)).keep()  # round: the top two bits are the quadrant
    n = (first >> 30) & 3
    return n, [(first & 0x3FFFFFFF).keep(), *limbs[1:]]


def _limbs_of(x: V, bits: int) -> list[V]:
    """Least significant limb first."""
    return [x] if bits <= 32 else [(x & _LIMB).keep(), (x >> 32).keep()]


def _window(position: V, count: int) -> list[V]:
    """`count` limbs of 2/π from bit `position` of _WORDS on, most significant first."""
    offset = (position & 31).keep()
    words = _words_from(position, count + 1)
    return [((((a << 32) | b) << offset) >> 32).keep() for a, b in pairwise(words)]


def _words_from(position: V, count: int) -> list[V]:
    """`count` words from word position // 32 on, by a barrel shift of 16, 8, 4, 2, 1 words, so that
    no memory is accessed."""
    last = 31 if count > 4 else 7  # of the words where a window may begin
    row = [position.number(word) for word in _WORDS[: last + count]]
    step = (last + 1) // 2
    while step:
        is_set = ((position >> (4 + step.bit_length())) & 1).differs(0).keep()
        pairs = zip(row, row[step:])
        row = [select(is_set, late, early).keep() for early, late in pairs][: count + step - 1]
        step //= 2
    return row


def _product(mantissa: Sequence[V], window: Sequence[V], kept: int) -> list[V]:
    """The first `kept` limbs of mantissa · window, which has as many limbs as the window: limbs
    before them would be multiples of a full turn."""
    columns: list[list[V]] = [[] for _ in window]
    for n, m in enumerate(mantissa):
        for k, w in enumerate(window):
            index, product = k - n, (m * w).keep()
            if index >= 0:
                columns[index].append(product & _LIMB)
            if index >= 1:
                columns[index - 1].append(product >> 32)
    limbs: list[V] = []
    carry: list[V] = []
    for column in reversed(columns[: kept + 1]):  # one more, for its carry
        total = reduce(V.__add__, column + carry).keep()
        limbs.append((total & _LIMB).keep())
        carry = [total >> 32]
    return limbs[::-1][:kept]


def _signed(limb: V) -> V:
    """The first limb of `_quarters` as a float64."""
    return (limb.to(dtypes.i32) - (1 << 29)).to(dtypes.f64)


def _small(limb: V) -> V:
    """A limb as a float64: its bits are or-ed into those of 2^52, which is then subtracted."""
    return (limb | 0x4330000000000000).bits(dtypes.f64) - 2.0**52

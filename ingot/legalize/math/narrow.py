"""Narrow types without hardware arithmetic: conversion to and from f32 (or i8) by bits.

bf16, float8, float4 and, without an instruction for it, f16: decoding is exact, encoding rounds
once, to nearest even. i4, u4, i2, u2 are stored one to a byte, whose other bits are undefined.
"""

from __future__ import annotations

from typing import NamedTuple

from ingot import dtypes
from ingot.dtypes import DType
from ingot.legalize.math.code import V, rounded, select

INF, NAN = float("inf"), float("nan")
_INF_BITS = 0x7F800000  # the bits of infinity as f32


class Format(NamedTuple):
    """A narrow float format. `special` says how its last codes are used:

    ieee: infinity, then NaN; fn: one NaN, no infinity; fnuz: NaN is the code of -0; none: neither.
    """

    mantissa: int
    bias: int
    special: str
    last: int  # the code of the largest finite value


FORMATS = {
    "f16": Format(10, 15, "ieee", 0x7BFF),
    "bf16": Format(7, 127, "ieee", 0x7F7F),
    "f8e5m2": Format(2, 15, "ieee", 0x7B),
    "f8e4m3fn": Format(3, 7, "fn", 0x7E),
    "f8e4m3fnuz": Format(3, 8, "fnuz", 0x7F),
    "f8e5m2fnuz": Format(2, 16, "fnuz", 0x7F),
    "f4e2m1fn": Format(1, 1, "none", 0x7),
}


def is_narrow_float(dtype: DType) -> bool:
    return dtype.name in FORMATS or dtype.name == "f8e8m0fnu"


def is_narrow_int(dtype: DType) -> bool:
    return dtype.is_int and dtype.bits < 8


def to_f32(x: V) -> V:
    """The exact value of a narrow float."""
    if x.dtype.name == "f8e8m0fnu":
        return _decode_power(x)
    form, bits = FORMATS[x.dtype.name], x.dtype.bits
    code = x.bits(dtypes.of(f"u{bits}")).to(dtypes.u32).keep()
    if x.dtype is dtypes.bf16:
        return (code << 16).bits(dtypes.f32)
    sign = (code >> (bits - 1)) << 31
    size = (code & ((1 << (bits - 1)) - 1)).keep()
    placed = (size << (23 - form.mantissa)).keep()
    # read with f32's bias, subnormals included, then corrected by one exact multiplication
    value = (placed.bits(dtypes.f32) * 2.0 ** (127 - form.bias)).bits(dtypes.u32)
    match form.special:
        case "ieee":
            value = select(size > form.last, placed | _INF_BITS, value)
        case "fn":
            value = select(size > form.last, 0x7FC00000, value)
        case "fnuz":
            value = select(code.equals(1 << (bits - 1)), 0x7FC00000, value)
    return (value | sign).bits(dtypes.f32)


def from_f32(x: V, dtype: DType, saturate: bool) -> V:
    """The nearest narrow float, ties to even; overflow gives infinity or NaN, or saturates."""
    if dtype.name == "f8e8m0fnu":
        return _encode_power(x, saturate)
    form, bits = FORMATS[dtype.name], dtype.bits
    x = x.keep()
    raw = x.bits(dtypes.u32).keep()
    size = (raw & 0x7FFFFFFF).keep()
    code = _rounded(size, form).keep()
    code = _ends(code, size, form, saturate and dtype.bits < 16)
    sign = (raw >> 31) << (bits - 1)
    whole = code | sign
    if form.special == "fnuz":
        whole = select(code.equals(0), 0, whole)
    if form.special in ("fnuz", "none"):  # NaN is the code of -0, or becomes it
        whole = select(size > _INF_BITS, 1 << (bits - 1), whole)
    return whole.to(dtypes.of(f"u{bits}")).bits(dtype)


def _rounded(size: V, form: Format) -> V:
    """The code of a magnitude given by its f32 bits, as if the exponent range had no end."""
    drop = 23 - form.mantissa
    even = (size >> drop) & 1
    normal = ((size + even + ((1 << (drop - 1)) - 1)) >> drop) - (
        (127 - form.bias) << form.mantissa
    )
    if form.bias == 127:  # the same subnormals as f32
        return normal
    # adding a power of two whose ulp is the smallest subnormal rounds to a multiple of it
    shift = 2.0 ** (24 - form.bias - form.mantissa)
    base = int(dtypes.f32.numpy.type(shift).view("uint32"))
    small = (size.bits(dtypes.f32) + shift).bits(dtypes.u32) - base
    first_normal = int(dtypes.f32.numpy.type(2.0 ** (1 - form.bias)).view("uint32"))
    return select(size < first_normal, small, normal)


def _ends(code: V, size: V, form: Format, saturate: bool) -> V:
    is_nan, is_over = size > _INF_BITS, code > form.last
    match form.special:
        case "ieee":
            past = form.last if saturate else form.last + 1
            code = select(is_over, past, code)
            return select(is_nan, (form.last + 1) | (1 << (form.mantissa - 1)), code)
        case "fn":
            code = select(is_over, form.last if saturate else form.last + 1, code)
            return select(is_nan, form.last + 1, code)
        case "fnuz":
            # -0's code is NaN: sign and code 0x80 | 0x80 meet in it
            return select(is_over, form.last if saturate else 0x80, code)
    return select(is_over, form.last, code)


def _decode_power(x: V) -> V:
    """f8e8m0fnu is 2**(code - 127), and NaN at 255."""
    code = x.bits(dtypes.u8).to(dtypes.u32).keep()
    value = select(code.equals(0), 1 << 22, code << 23)
    return select(code.equals(255), 0x7FC00000, value).bits(dtypes.f32)


def _encode_power(x: V, saturate: bool) -> V:
    """The nearest power of two; zero and negative values saturate to the lowest, or give NaN."""
    x = x.keep()
    raw = x.bits(dtypes.u32).keep()
    up = (raw >> 22) & 1
    code = ((raw >> 23) + up).keep()
    small = select(raw > 0x00400000, 1, raw.number(0))  # subnormal: ml_dtypes rounds these up
    code = select(raw < 0x00800000, small, code)
    code = select(code > 254, 254 if saturate else 255, code)
    code = select(x > 0.0, code, select(x.is_nan(), 255, raw.number(0)) if saturate else 255)
    return code.to(dtypes.u8).bits(dtypes.of("f8e8m0fnu"))


def round_to_odd_f32(x: V) -> V:
    """f64 → f32 rounded to odd, so that a second rounding to fewer bits is correct."""
    x = x.keep()
    near = x.to(dtypes.f32).keep()
    back = near.to(dtypes.f64).keep()
    raw = near.bits(dtypes.u32).keep()
    cut = select(abs(back) > abs(x), raw - 1, raw) | 1
    is_exact = back.equals(x) | x.is_nan() | abs(x).equals(INF)
    return select(is_exact, near, cut.bits(dtypes.f32))


def round_to_odd_f64(n: V) -> V:
    """A 64-bit integer → f64 rounded to odd: the bits below bit 11 become one sticky bit."""
    n = n.keep()
    low = n & 0x7FF
    cut = (n - low) | select(low.equals(0), n.number(0), 0x800)
    limit = 1 << 53
    is_small = n < limit
    if n.dtype.is_signed:
        is_small = is_small & (n > -limit)
    return select(is_small, n, cut).to(dtypes.f64)


def int_to_f32(n: V) -> V:
    """An integer as f32, exact or rounded to odd."""
    if n.dtype.bits <= 16:
        return n.to(dtypes.f32)
    return round_to_odd_f32(round_to_odd_f64(n) if n.dtype.bits == 64 else n.to(dtypes.f64))


def wrapped_int(x: V, dtype: DType) -> V:
    """An 8-bit integer reduced into fewer bits, and of that type."""
    spare = 8 - dtype.bits
    if dtype.is_signed:
        return ((x.to(dtypes.i8) << spare) >> spare).to(dtype)
    return (x.to(dtypes.u8) & ((1 << dtype.bits) - 1)).to(dtype)


def modular_int(x: V) -> V:
    """A float's whole part modulo 2^64, as i64; 0 for NaN and infinities.

    The difference to the nearest multiple of 2^64 is exact, and fits i64 except 2^63 itself.
    """
    x = x.keep()
    near = rounded("round", x * 2.0**-64)
    rest = (x - near * 2.0**64).keep()
    return select(rest >= 2.0**63, -(2.0**63), rest).to(dtypes.i64)


__all__ = ["FORMATS", "from_f32", "int_to_f32", "is_narrow_float",
           "is_narrow_int", "modular_int", "round_to_odd_f32", "to_f32", "wrapped_int"]  # fmt: skip

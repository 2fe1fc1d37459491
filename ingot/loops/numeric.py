"""Exact semantics of the loop IR's operators, on numpy scalars and 1-D arrays of lanes.

In: operator names and element types. Out: functions of values. Called by `interp`, once for each
node it compiles. Every float operation rounds to its own type; integers wrap; conversions round
once. Where numpy or ml_dtypes would round twice or promote, the work is done on wider floats
rounded to odd, or on Python's integers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from ingot.dtypes import DType, f64
from ingot.support.errors import IngotError

Fn = Callable[..., Any]
_NATIVE_FLOATS = ("f16", "f32", "f64")
_COMPARE: dict[str, Fn] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt,
    "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
_PLAIN: dict[str, Fn] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor,
}  # fmt: skip
_FLOAT_UNARY: dict[str, Fn] = {
    "neg": operator.neg, "abs": np.abs, "floor": np.floor, "ceil": np.ceil, "round": np.rint,
    "trunc": np.trunc, "sqrt": np.sqrt, "isnan": np.isnan,
}  # fmt: skip
_INT_UNARY: dict[str, Fn] = {"neg": operator.neg, "not": operator.invert, "abs": abs}


def wrap_int(number: int, dtype: DType) -> int:
    """`number` wrapped into an integer type: two's complement."""
    number &= (1 << dtype.bits) - 1
    top = 1 << (dtype.bits - 1)
    return number - (1 << dtype.bits) if dtype.is_signed and number & top else number


def constant(number: int | float, dtype: DType) -> Any:
    """A literal as a value of its type."""
    if dtype.is_float:
        return round_float(np.float64(number), dtype)
    return dtype.numpy.type(wrap_int(int(number), dtype) if dtype.is_int else bool(number))


# --- arithmetic ---------------------------------------------------------------------------------


def unary(op: str, dtype: DType) -> Fn:
    if dtype.is_float:
        return _FLOAT_UNARY[op]
    if dtype.is_bool:
        return {"not": np.logical_not}[op]
    return _by_int(_INT_UNARY[op], dtype)


def binary(op: str, dtype: DType, lanes: int) -> Fn:
    if op in ("min", "max"):
        one = _minimum if op == "min" else _maximum
        many = np.minimum if op == "min" else np.maximum
        return one if lanes == 1 else many if dtype.bits >= 8 else _each(one, dtype)
    if dtype.is_float or dtype.is_bool:
        return _PLAIN[op]
    if op in ("div", "floordiv", "mod", "rem"):
        return _by_int(_guarded(_DIVISIONS[op]), dtype)
    if op in ("shl", "shr"):
        return _by_int(_shift(op, dtype), dtype)
    return _PLAIN[op] if dtype.bits >= 8 else _by_int(_PLAIN[op], dtype)


def compare(op: str, dtype: DType, lanes: int) -> Fn:
    fn = _COMPARE[op]
    if lanes > 1 or dtype.numpy.kind != "V":
        return fn
    return lambda a, b: np.bool_(fn(a, b))  # ml_dtypes' scalars return Python's bool


def _minimum(a: Any, b: Any) -> Any:
    return a if a <= b or a != a else b  # a comparison with NaN is false, so a NaN in b is returned


def _maximum(a: Any, b: Any) -> Any:
    return a if a >= b or a != a else b


def _truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


_DIVISIONS: dict[str, Callable[[int, int], int]] = {
    "div": _truncated,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "rem": lambda a, b: a - b * _truncated(a, b),
}


def _guarded(fn: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def divide(a: int, b: int) -> int:
        if b == 0:
            raise IngotError(
                "run-failed",
                "integer division by zero",
                why="a kernel must guard a divisor that may be zero with a Fail before it",
            )
        return fn(a, b)

    return divide


def _shift(op: str, dtype: DType) -> Callable[[int, int], int]:
    move = operator.lshift if op == "shl" else operator.rshift
    return lambda a, b: move(a, b) if 0 <= b < dtype.bits else 0


def _by_int(fn: Callable[..., int], dtype: DType) -> Fn:
    """Computed on Python integers, then wrapped into the type."""
    make = dtype.numpy.type
    return _each(lambda *xs: make(wrap_int(fn(*map(int, xs)), dtype)), dtype)


def _each(fn: Fn, dtype: DType) -> Fn:
    """A function of scalars, applied lane by lane to vectors."""

    def apply(*xs: Any) -> Any:
        if isinstance(xs[0], np.ndarray):
            return np.array([fn(*lane) for lane in zip(*xs)], dtype.numpy)
        return fn(*xs)

    return apply


def lane_reduce(op: str, dtype: DType) -> Fn:
    """A balanced tree: lane i is combined with lane i + ceil(n / 2); an odd middle is kept."""
    combine = binary(op, dtype, 2)

    def reduce(lanes: np.ndarray) -> Any:
        while len(lanes) > 1:
            half = (len(lanes) + 1) // 2
            low, high = lanes[:half], lanes[half:]
            combined = combine(low[: len(high)], high)
            lanes = np.concatenate([combined, low[len(high) :]]).astype(dtype.numpy)
        return lanes[0]

    return reduce


# --- conversions --------------------------------------------------------------------------------


def round_float(x: Any, dtype: DType) -> Any:
    """float64 → `dtype`, rounded once, to nearest even."""
    if dtype.name in _NATIVE_FLOATS:
        return x.astype(dtype.numpy)
    return _odd_f32(x).astype(dtype.numpy)  # ml_dtypes converts through float32


def _odd_f32(x: Any) -> Any:
    """float64 → float32 rounded to odd, so that a later rounding to fewer bits is exact."""
    wide = np.atleast_1d(np.asarray(x, np.float64))
    near = wide.astype(np.float32)
    back = near.astype(np.float64)
    inexact = (back != wide) & np.isfinite(wide)
    near = np.where(
        inexact & (np.abs(back) > np.abs(wide)), np.nextafter(near, np.float32(0)), near
    )
    odd = (near.view(np.uint32) | inexact.astype(np.uint32)).view(np.float32)
    # setting the last bit keeps the sign of an underflow to zero
    return odd if isinstance(x, np.ndarray) and x.ndim else odd[0]


def cast(src: DType, dst: DType, mode: str) -> Fn:
    """The conversion of `ir.Cast`; docs/loops.md says which conversions saturate."""
    if src is dst:
        return lambda x: x
    if dst.is_bool:
        zero = src.numpy.type(0)
        return lambda x: np.not_equal(x, zero)
    if src.is_float:
        return _from_float(src, dst, mode)
    if dst.is_float:
        return _int_to_float(dst)
    if src.bits >= 8 and dst.bits >= 8:
        return lambda x: x.astype(dst.numpy)
    make = dst.numpy.type
    return _each(lambda x: make(wrap_int(int(x), dst)), dst)


def _from_float(src: DType, dst: DType, mode: str) -> Fn:
    if dst.is_int:
        make = dst.numpy.type
        return _each(lambda x: make(_to_int(float(x), dst, mode)), dst)
    if src.name in _NATIVE_FLOATS and dst.name in _NATIVE_FLOATS:
        return lambda x: x.astype(dst.numpy)
    limits = ml_dtypes.finfo(dst.numpy)
    low, high = float(limits.min), float(limits.max)
    saturates = mode == "saturate" and dst.bits < 16

    def convert(x: Any) -> Any:
        wide = x.astype(np.float64)
        return round_float(np.clip(wide, low, high) if saturates else wide, dst)

    return convert


def _to_int(x: float, dst: DType, mode: str) -> int:
    if math.isnan(x) or (math.isinf(x) and mode == "wrap"):
        return 0
    if math.isinf(x):
        return int(dst.highest if x > 0 else dst.lowest)
    number = int(x)
    if mode == "wrap":
        return wrap_int(number, dst)
    return min(max(number, int(dst.lowest)), int(dst.highest))


def _int_to_float(dst: DType) -> Fn:
    if dst.name in _NATIVE_FLOATS:
        return lambda x: x.astype(dst.numpy)
    return _each(lambda x: round_float(np.float64(_odd_53(int(x))), dst), dst)


def _odd_53(number: int) -> int:
    """An integer rounded to odd at 53 bits, so that float64 represents it."""
    size = abs(number)
    dropped = max(0, size.bit_length() - 53)
    if size & ((1 << dropped) - 1):
        size = ((size >> dropped) | 1) << dropped
    return size if number >= 0 else -size


def bitcast(src: DType, dst: DType) -> Fn:
    bits = np.dtype(f"u{src.storage_bytes}")
    mask = (1 << src.bits) - 1

    def convert(x: Any) -> Any:
        raw = np.atleast_1d(np.asarray(x, src.numpy)).view(bits)
        if src.bits < 8:
            raw = raw & np.uint8(mask)
        if dst.is_int and dst.bits < 8:
            made = np.array([dst.numpy.type(wrap_int(int(r), dst)) for r in raw], dst.numpy)
        else:
            made = raw.astype(bits).view(dst.numpy)
        return made if isinstance(x, np.ndarray) else made[0]

    return convert


# --- fused and transcendental -------------------------------------------------------------------


def fma(dtype: DType) -> Fn:
    """a · b + c, rounded once."""
    if dtype is f64:
        return _each(_fma_f64, dtype)
    if dtype.is_float:
        return lambda a, b, c: round_float(_product_sum(a, b, c), dtype)
    return _by_int(lambda a, b, c: a * b + c, dtype)


def _product_sum(a: Any, b: Any, c: Any) -> Any:
    """a · b + c in float64, rounded to odd; the product of two narrower floats is exact there."""
    product, wide = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = np.asarray(product + wide)
    part = total - product
    error = (product - (total - part)) + (wide - part)
    even = (total.view(np.uint64) & np.uint64(1)) == 0
    nudge = np.isfinite(error) & (error != 0) & even
    odd = np.where(nudge, np.nextafter(total, np.copysign(np.inf, error)), total)
    return odd if isinstance(a, np.ndarray) else odd[()]


def _fma_f64(a: Any, b: Any, c: Any) -> Any:
    if not all(math.isfinite(x) for x in (a, b, c)):
        return np.float64(a * b + c)
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0:
        return np.float64(a * b + c)  # the sign of an exact zero is that of IEEE addition
    try:
        return np.float64(float(exact))
    except OverflowError:
        return np.float64(math.inf if exact > 0 else -math.inf)


def _power(x: Any, y: Any) -> Any:
    """C's pow. numpy computes a scalar exponent of 0.5 as a square root, which is NaN for -inf."""
    found = np.power(np.atleast_1d(x), np.atleast_1d(y))
    return found if isinstance(x, np.ndarray) and x.ndim else found[0]


_ERF = np.frompyfunc(math.erf, 1, 1)
_MATH: dict[str, Fn] = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "log1p": np.log1p,
    "expm1": np.expm1, "tanh": np.tanh, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "pow": _power, "fmod": np.fmod,
    "erf": lambda x: np.asarray(_ERF(x), np.float64)[()],
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
}  # fmt: skip


PHILOX_FACTORS = (0xD2511F53, 0xCD9E8D57)
PHILOX_WEYL = (0x9E3779B9, 0xBB67AE85)  # added to the key in each round
PHILOX_ROUNDS = 10


def philox(low: Any, high: Any, key: Any) -> Any:
    """Philox4x32-10 of u64 values: the first half of the block of counter high:low."""
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    c0, c1, c2, c3 = low & mask, low >> half, high & mask, high >> half
    k0, k1 = key & mask, key >> half
    with np.errstate(over="ignore"):
        for _ in range(PHILOX_ROUNDS):
            p, q = c0 * np.uint64(PHILOX_FACTORS[0]), c2 * np.uint64(PHILOX_FACTORS[1])
            c0, c1, c2, c3 = (q >> half) ^ c1 ^ k0, q & mask, (p >> half) ^ c3 ^ k1, p & mask
            k0 = (k0 + np.uint64(PHILOX_WEYL[0])) & mask
            k1 = (k1 + np.uint64(PHILOX_WEYL[1])) & mask
    return c0 | (c1 << half)


def math_function(fn: str, dtype: DType) -> Fn:
    """The function computed in float64, then rounded to the type; philox is exact."""
    if fn == "philox":
        return philox
    compute = _MATH[fn]
    return lambda *xs: round_float(compute(*(x.astype(np.float64) for x in xs)), dtype)

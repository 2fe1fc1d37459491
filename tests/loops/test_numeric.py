"""Exact arithmetic: wrapping, NaN, conversions against numpy, ml_dtypes and Python's integers."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot import dtypes
from ingot.dtypes import DType, bf16, bool_, f16, f32, f64, i8, i32, i64, u8
from ingot.loops import interp, ir, numeric
from tests.loops.kernels import buf, i, kernel, loop, num, store
from tests.refusal import refused

INTS = [d for d in dtypes.TABLE.values() if d.is_int]
FLOATS = [d for d in dtypes.TABLE.values() if d.is_float]


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def evaluate(e: ir.Expr, **arrays: np.ndarray) -> np.ndarray:
    """`e` at every i, as a kernel: inputs by name, the last dimension is i."""
    count = len(next(iter(arrays.values()))) if arrays else 1
    out = buf("out", e.dtype, count)
    params = [buf(name, dtypes.from_numpy(a.dtype), count) for name, a in arrays.items()]
    result = np.zeros(count, e.dtype.numpy)
    interp.run(
        kernel([*params, out], loop("i", count, store(out, i, e))), [*arrays.values(), result]
    )
    return result


def of(name: str, dtype: DType, count: int) -> ir.Load:
    return buf(name, dtype, count)[i]


# --- integers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", INTS, ids=str)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "min", "max", "and", "or", "xor"])
def test_integers_wrap(dtype, op):
    exact = {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
        "min": min, "max": max, "and": lambda a, b: a & b, "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
    }[op]  # fmt: skip
    ends = [int(dtype.lowest), int(dtype.highest), 0, 1]
    pairs = [(a, b) for a in ends for b in ends]
    a = np.array([p[0] for p in pairs], dtype.numpy)
    b = np.array([p[1] for p in pairs], dtype.numpy)
    count = len(pairs)
    got = evaluate(ir.Binary(op, of("a", dtype, count), of("b", dtype, count)), a=a, b=b)
    assert [int(x) for x in got] == [numeric.wrap_int(exact(x, y), dtype) for x, y in pairs]
    lanes = numeric.binary(op, dtype, count)(a, b)
    assert lanes.dtype == dtype.numpy and (lanes == got).all()


@pytest.mark.parametrize("dtype", [i8, i32, i64, dtypes.i4], ids=str)
def test_divisions(dtype):
    a, b = np.array([7, -7, 7, -7], dtype.numpy), np.array([2, 2, -2, -2], dtype.numpy)
    expect = {"div": [3, -3, -3, 3], "floordiv": [3, -4, -4, 3]}
    expect |= {"mod": [1, 1, -1, -1], "rem": [1, -1, 1, -1]}
    for op, answers in expect.items():
        got = evaluate(ir.Binary(op, of("a", dtype, 4), of("b", dtype, 4)), a=a, b=b)
        assert [int(x) for x in got] == answers
    lowest = np.array([dtype.lowest], dtype.numpy)
    quotient = ir.Binary("div", of("a", dtype, 1), num(-1, dtype))
    assert int(evaluate(quotient, a=lowest)[0]) == dtype.lowest


def test_division_by_zero_raises():
    with refused("run-failed", hint=False):
        evaluate(ir.Binary("mod", of("a", i32, 1), num(0, i32)), a=np.ones(1, np.int32))


def test_shifts_by_the_width_or_more_are_zero():
    a = np.array([-1, -1, -1, 1], np.int8)
    by = np.array([1, 8, 100, 7], np.int8)
    assert list(evaluate(ir.Binary("shr", of("a", i8, 4), of("b", i8, 4)), a=a, b=by)) == [
        -1,
        0,
        0,
        0,
    ]
    assert list(evaluate(ir.Binary("shl", of("a", i8, 4), of("b", i8, 4)), a=a, b=by)) == [
        -2,
        0,
        0,
        -128,
    ]


def test_bool_is_logical():
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    left, right = of("a", bool_, 4), of("b", bool_, 4)
    assert list(evaluate(left & right, a=a, b=b)) == list(a & b)
    assert list(evaluate(~(left | right), a=a, b=b)) == list(~(a | b))


def test_unary_integers_wrap():
    a = np.array([-128, 5], np.int8)
    assert list(evaluate(-of("a", i8, 2), a=a)) == [-128, -5]
    assert list(evaluate(ir.Unary("abs", of("a", i8, 2)), a=a)) == [-128, 5]
    assert list(evaluate(~of("a", i8, 2), a=a)) == [127, -6]


# --- floats ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [f16, bf16, f32, f64, dtypes.f8e5m2], ids=str)
@pytest.mark.parametrize("lanes", [1, 4])
def test_min_and_max_propagate_nan(dtype, lanes):
    a = np.array([1, np.nan, 3, np.inf]).astype(dtype.numpy)
    b = np.array([np.nan, 1, 2, -np.inf]).astype(dtype.numpy)
    for op, last in (("max", [3, np.inf]), ("min", [2, -np.inf])):
        if lanes == 1:
            got = evaluate(ir.Binary(op, of("a", dtype, 4), of("b", dtype, 4)), a=a, b=b)
        else:
            got = numeric.binary(op, dtype, 4)(a, b)
        assert np.isnan(got[:2].astype(float)).all()
        assert list(got[2:].astype(float)) == last


@pytest.mark.parametrize("dtype", [f16, bf16, f32], ids=str)
def test_float_operations_round_to_their_type(dtype):
    rng = np.random.default_rng(1)
    a = rng.standard_normal(200).astype(dtype.numpy)
    b = rng.standard_normal(200).astype(dtype.numpy)
    for op, exact in (("add", np.add), ("mul", np.multiply), ("div", np.divide)):
        got = evaluate(ir.Binary(op, of("a", dtype, 200), of("b", dtype, 200)), a=a, b=b)
        wide = exact(a.astype(np.float64), b.astype(np.float64))
        np.testing.assert_array_equal(got, numeric.round_float(wide, dtype))


def test_rounding_functions():
    a = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], np.float32)
    expect = {"round": [-2, -2, -0.0, 0, 2, 2], "floor": [-3, -2, -1, 0, 1, 2]}
    expect |= {"ceil": [-2, -1, -0.0, 1, 2, 3], "trunc": [-2, -1, -0.0, 0, 1, 2]}
    for op, answers in expect.items():
        np.testing.assert_array_equal(evaluate(ir.Unary(op, of("a", f32, 6)), a=a), answers)


def test_comparisons_with_nan():
    a, nan = of("a", f32, 1), num(math.nan)
    for op in ir.COMPARE:
        flag = evaluate(ir.Compare(op, a, nan), a=np.ones(1, np.float32))[0]
        assert flag == (op == "ne")


finite = st.floats(allow_nan=False, allow_infinity=False, width=32)


@settings(max_examples=200, deadline=None)
@given(finite, finite, finite)
def test_fma_of_f32_is_rounded_once(a, b, c):
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    got = numeric.fma(f32)(np.float32(a), np.float32(b), np.float32(c))
    assert got == _nearest_f32(exact)


def _nearest_f32(exact: Fraction) -> np.float32:
    """The float32 nearest to a fraction, ties to even, by comparing neighbours."""
    if abs(exact) >= Fraction(2) ** 128 - Fraction(2) ** 103:
        return np.float32(math.copysign(math.inf, exact))
    near = np.float32(min(max(float(exact), -3.4028234663852886e38), 3.4028234663852886e38))
    around = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    around = [x for x in around if np.isfinite(x)]
    return min(around, key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(np.uint32)) & 1))


def test_fma_double_rounding_case():
    # the product is half-way between two float32 and the addend decides; float64 alone would not
    a, b = np.float32(1 + 2**-12), np.float32(1 + 2**-12)
    c = np.float32(2**-60)
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    assert numeric.fma(f32)(a, b, c) == _nearest_f32(exact)
    assert numeric.fma(f32)(a, b, -c) == _nearest_f32(exact - 2 * Fraction(float(c)))
    assert numeric.fma(f32)(a, b, c) != numeric.fma(f32)(a, b, -c)


def test_fma_of_f64_and_its_corners():
    fma = numeric.fma(f64)
    tiny = np.float64(2**-30)
    assert fma(1 + tiny, 1 - tiny, np.float64(-1.0)) == -(2.0**-60)
    assert math.isnan(fma(np.float64(math.inf), np.float64(0), np.float64(1)))
    assert fma(np.float64(1e308), np.float64(10), np.float64(0)) == math.inf
    assert math.copysign(1, fma(np.float64(-1), np.float64(0), np.float64(-0.0))) == -1
    lanes = fma(np.array([2.0, 3.0]), np.array([4.0, 5.0]), np.array([1.0, 1.0]))
    assert list(lanes) == [9.0, 16.0]


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
def test_fma_of_narrow_floats(dtype):
    rng = np.random.default_rng(2)
    a, b, c = (rng.standard_normal(300).astype(dtype.numpy) for _ in range(3))
    got = numeric.fma(dtype)(a, b, c)
    wide = [x.astype(np.float64) for x in (a, b, c)]
    exact = numeric.round_float(wide[0] * wide[1] + wide[2], dtype)  # exact in float64 here
    np.testing.assert_array_equal(got, exact)


def test_lanes_reduce_by_halves():
    lanes = np.array([1e8, 1.0, -1e8, 1.0, 0.5], np.float32)
    by_three = [lanes[0] + lanes[3], lanes[1] + lanes[4], lanes[2]]
    expect = np.float32(np.float32(by_three[0] + by_three[2]) + by_three[1])
    assert numeric.lane_reduce("add", f32)(lanes) == expect


@pytest.mark.parametrize("fn", ["exp", "log", "tanh", "erf", "sigmoid", "rsqrt", "sin", "atanh"])
def test_functions_are_within_half_an_ulp(fn):
    x = np.linspace(0.01, 0.99, 50).astype(np.float32)
    got = evaluate(ir.Math(fn, (of("a", f32, 50),)), a=x)
    exact = {
        "exp": math.exp, "log": math.log, "tanh": math.tanh, "erf": math.erf, "sin": math.sin,
        "sigmoid": lambda v: 1 / (1 + math.exp(-v)), "rsqrt": lambda v: 1 / math.sqrt(v),
        "atanh": math.atanh,
    }[fn]  # fmt: skip
    np.testing.assert_allclose(got, [exact(float(v)) for v in x], rtol=2**-23)


# --- conversions -------------------------------------------------------------------------------

SPECIAL = [
    0.0,
    -0.0,
    1.5,
    -1.5,
    127.9,
    128.0,
    -129.0,
    3e9,
    -3e9,
    1e20,
    math.inf,
    -math.inf,
    math.nan,
]


@pytest.mark.parametrize("dtype", [i8, u8, i32, i64, dtypes.i4], ids=str)
def test_float_to_int_saturates_or_wraps(dtype):
    a = np.array(SPECIAL, np.float64)
    load = of("a", f64, len(a))
    saturated = [int(x) for x in evaluate(ir.Cast(load, dtype), a=a)]
    wrapped = [int(x) for x in evaluate(ir.Cast(load, dtype, "wrap"), a=a)]
    for x, s, w in zip(SPECIAL, saturated, wrapped):
        if math.isnan(x):
            assert (s, w) == (0, 0)
        elif math.isinf(x):
            assert (s, w) == (dtype.highest if x > 0 else dtype.lowest, 0)
        else:
            assert s == min(max(int(x), dtype.lowest), dtype.highest)
            assert w == numeric.wrap_int(int(x), dtype)


@pytest.mark.parametrize("dst", INTS, ids=str)
def test_int_to_int_wraps(dst):
    a = np.array([0, 1, -1, 127, 128, 300, -300, 2**40 + 3, -(2**63)], np.int64)
    got = evaluate(ir.Cast(of("a", i64, len(a)), dst), a=a)
    assert [int(x) for x in got] == [numeric.wrap_int(int(x), dst) for x in a]


def test_to_and_from_bool():
    a = np.array([0.0, -0.0, 0.5, math.nan, -3.0], np.float32)
    assert list(evaluate(ir.Cast(of("a", f32, 5), bool_), a=a)) == [False, False, True, True, True]
    flags = np.array([True, False])
    assert list(evaluate(ir.Cast(of("a", bool_, 2), f32), a=flags)) == [1.0, 0.0]
    assert list(evaluate(ir.Cast(of("a", bool_, 2), dtypes.bf16), a=flags)) == [1.0, 0.0]


@pytest.mark.parametrize("dst", FLOATS, ids=str)
def test_float_to_float_matches_ml_dtypes(dst):
    rng = np.random.default_rng(3)
    a = (rng.standard_normal(300) * np.exp2(rng.integers(-12, 8, 300))).astype(np.float32)
    a = np.clip(a, -ml_dtypes.finfo(dst.numpy).max, ml_dtypes.finfo(dst.numpy).max).astype(
        np.float32
    )
    a = np.abs(a) if dst.name == "f8e8m0fnu" else a
    got = evaluate(ir.Cast(of("a", f32, 300), dst, "wrap"), a=a)
    np.testing.assert_array_equal(got.view(np.uint8), a.astype(dst.numpy).view(np.uint8))


def test_float64_to_bfloat16_is_rounded_once():
    a = np.array([1 + 2**-8 + 2**-40, 1 + 3 * 2**-8 - 2**-40, -(1 + 2**-8 + 2**-40)])
    got = evaluate(ir.Cast(of("a", f64, 3), bf16), a=a)
    assert list(got.astype(float)) == [1 + 2**-7, 1 + 2**-7, -(1 + 2**-7)]


def test_large_integers_to_bfloat16_are_rounded_once():
    half = (1 << 62) + (1 << 54)
    a = np.array([half, half + 1, -half - 1], np.int64)
    got = evaluate(ir.Cast(of("a", i64, 3), bf16), a=a).astype(float)
    assert list(got) == [2.0**62, 2.0**62 + 2.0**55, -(2.0**62 + 2.0**55)]


def test_narrow_floats_saturate_when_asked_and_wide_ones_overflow():
    a = np.array([1e9, -1e9, math.inf, math.nan], np.float32)
    load = of("a", f32, 4)
    e4m3 = evaluate(ir.Cast(load, dtypes.f8e4m3fn), a=a).astype(float)
    assert list(e4m3[:3]) == [448, -448, 448] and math.isnan(e4m3[3])
    assert np.isnan(evaluate(ir.Cast(load, dtypes.f8e4m3fn, "wrap"), a=a).astype(float)).all()
    e5m2 = evaluate(ir.Cast(load, dtypes.f8e5m2, "wrap"), a=a).astype(float)
    assert list(e5m2[:3]) == [math.inf, -math.inf, math.inf]
    assert list(evaluate(ir.Cast(load, f16), a=a)[:3]) == [math.inf, -math.inf, math.inf]


def test_bitcasts():
    a = np.array([1.0, -0.0], np.float32)
    assert list(evaluate(ir.Bitcast(of("a", f32, 2), i32), a=a)) == [0x3F800000, -(2**31)]
    nibbles = np.array([-1, 7]).astype(ml_dtypes.int4)
    assert [int(x) for x in evaluate(ir.Bitcast(of("a", dtypes.i4, 2), dtypes.u4), a=nibbles)] == [
        15,
        7,
    ]
    back = ir.Bitcast(ir.Bitcast(of("a", f16, 1), dtypes.u16), f16)
    assert evaluate(back, a=np.array([1.25], np.float16))[0] == 1.25

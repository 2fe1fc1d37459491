"""Narrow types: every code decodes and encodes as the interpreter has it, and arithmetic agrees."""

import itertools

import numpy as np
import pytest

from ingot import dtypes
from ingot.dtypes import DType
from ingot.legalize.context import PassContext
from ingot.legalize.expand_math import _Expand
from ingot.legalize.math.code import V
from ingot.legalize.math.narrow import FORMATS
from ingot.loops import interp, ir, numeric
from ingot.loops.build import Build
from tests.legalize.common import AVX2, PLAIN, check
from tests.legalize.evaluate import evaluate_function

NARROW = [*FORMATS, "f8e8m0fnu"]


def expander(on=PLAIN) -> _Expand:
    return _Expand(PassContext.of(ir.Kernel("k", (), (), ir.Seq(())), on))


def convert(x: np.ndarray, source: DType, target: DType, mode: str = "saturate") -> np.ndarray:
    expand = expander()
    return evaluate_function(lambda v: expand.cast(v, target, mode), [source], [x], has_fma=False)


def all_codes(dtype: DType) -> np.ndarray:
    kind = np.uint16 if dtype.bits == 16 else np.uint8
    return np.arange(1 << dtype.bits, dtype=kind).view(dtype.numpy)


def same(got: np.ndarray, want: np.ndarray) -> None:
    """Equal values and equal signs of zero; any NaN is as good as another."""
    a, b = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(a, b)
    known = ~np.isnan(b)
    np.testing.assert_array_equal(np.signbit(a[known]), np.signbit(b[known]))


@pytest.mark.parametrize("name", NARROW)
def test_every_code_decodes(name):
    dtype = dtypes.of(name)
    codes = all_codes(dtype)
    same(convert(codes, dtype, dtypes.f32), codes.astype(np.float32))
    same(convert(codes, dtype, dtypes.f64), codes.astype(np.float64))


def floats(dtype: DType) -> np.ndarray:
    """Every value of the type, the midpoints between them, points near those, and all sizes."""
    rng = np.random.default_rng(0)
    values = all_codes(dtype).astype(np.float64)
    values = np.sort(values[np.isfinite(values)])
    middle = (values[1:] + values[:-1]) / 2
    near = np.concatenate([np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)])
    spread = np.exp(rng.uniform(-110, 89, 4000)) * rng.choice([-1, 1], 4000)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e38, 448, 464, 465, 57344, 61440, 7, 5]
    return np.concatenate([values, middle, near, spread, special])


@pytest.mark.parametrize("mode", ["saturate", "wrap"])
@pytest.mark.parametrize("source", [dtypes.f32, dtypes.f64], ids=str)
@pytest.mark.parametrize("name", NARROW)
def test_every_rounding_is_to_nearest_even(name, source, mode):
    dtype = dtypes.of(name)
    with np.errstate(all="ignore"):
        x = floats(dtype).astype(source.numpy)
        want = numeric.cast(source, dtype, mode)(x)
        same(convert(x, source, dtype, mode), want)


@pytest.mark.parametrize("name", ["f16", "bf16", "f8e4m3fn", "f8e5m2"])
@pytest.mark.parametrize("source", ["i8", "u8", "i16", "i32", "u32", "i64", "u64"])
def test_integers_round_once(name, source):
    kind, dtype = dtypes.of(source), dtypes.of(name)
    rng = np.random.default_rng(1)
    info = np.iinfo(kind.numpy)
    sizes = 2.0 ** rng.uniform(0, kind.bits - 1.01, 300)
    odd = [
        0,
        1,
        255,
        257,
        513,
        2049,
        65519,
        65520,
        (1 << 24) + 1,
        (1 << 53) + 1,
        info.min,
        info.max,
    ]
    odd = [v for v in odd if info.min <= v <= info.max]
    x = np.concatenate([sizes.astype(kind.numpy), np.array(odd, kind.numpy)])
    with np.errstate(all="ignore"):
        same(convert(x, kind, dtype), numeric.cast(kind, dtype, "saturate")(x))


@pytest.mark.parametrize("name", ["i4", "u4", "i2", "u2"])
def test_narrow_integers_wrap_and_saturate(name):
    dtype = dtypes.of(name)
    whole = np.arange(-300, 300).astype(np.int32)
    got = convert(whole, dtypes.i32, dtype)
    np.testing.assert_array_equal(
        got.astype(np.int32), [numeric.wrap_int(int(v), dtype) for v in whole]
    )
    x = np.array([-1e9, -9.5, -1.5, -0.5, 0.5, 1.7, 7.9, 8.0, 16.0, 1e9, np.nan], np.float32)
    want = numeric.cast(dtypes.f32, dtype, "saturate")(x)
    np.testing.assert_array_equal(convert(x, dtypes.f32, dtype).astype(int), want.astype(int))


OPERATIONS = ["add", "sub", "mul", "div", "min", "max"]


@pytest.mark.parametrize("on", [AVX2, PLAIN], ids=["avx2", "plain"])
@pytest.mark.parametrize("name", ["f16", "bf16", "f8e4m3fn"])
def test_arithmetic_rounds_after_every_operation(name, on):
    dtype = dtypes.of(name)
    b = Build("small")
    x, y = b.param("x", dtype, (6,)), b.param("y", dtype, (6,))
    outs = []
    for op in OPERATIONS:
        outs.append(b.compute(op, (6,), lambda i, op=op: ir.Binary(op, x[i], y[i])))
    outs.append(b.compute("chain", (6,), lambda i: (x[i] + y[i]) * x[i] - ir.Math("exp", (y[i],))))
    outs.append(
        b.compute("less", (6,), lambda i: ir.Select(ir.Compare("lt", x[i], y[i]), x[i], -y[i]))
    )
    outs.append(b.compute("root", (6,), lambda i: ir.Unary("sqrt", ir.Unary("abs", x[i]))))
    check(b.finish(outs), on=on, rtol=0)


def test_narrow_integer_arithmetic_wraps():
    b = Build("nibbles")
    i4 = dtypes.i4
    x, y = b.param("x", i4, (16,)), b.param("y", i4, (16,))
    outs = [
        b.compute(op, (16,), lambda i, op=op: ir.Binary(op, x[i], y[i]))
        for op in ("add", "mul", "sub", "min", "xor", "shl", "shr")
    ]
    codes = [
        a.astype(i4.numpy) for a in np.array([*itertools.product(range(-8, 8, 4), repeat=2)]).T
    ]
    check(b.finish(outs), given={"x": codes[0], "y": codes[1]})


def test_the_half_instruction_is_used_where_there_is_one():
    code = expander(AVX2)
    x = V(None, ir.Ref("x", dtypes.f16))  # type: ignore[arg-type]
    assert code.widen(x).e == ir.Cast(x.e, dtypes.f32)


def test_f64_remainder_is_a_loop_and_exact():
    b = Build("remainder")
    x, y = b.param("x", dtypes.f64, (40,)), b.param("y", dtypes.f64, (40,))
    out = b.compute("out", (40,), lambda i: ir.Math("fmod", (x[i], y[i])))
    kernel = b.finish([out])
    rng = np.random.default_rng(2)
    xs = np.exp(rng.uniform(-700, 700, 40)) * rng.choice([-1, 1], 40)
    ys = np.exp(rng.uniform(-700, 700, 40)) * rng.choice([-1, 1], 40)
    xs[:8] = [5.3, -5.3, np.inf, 1.0, np.nan, 1e308, 3.0, -0.0]
    ys[:8] = [1.1, 1.1, 2.0, 0.0, 1.0, 5e-324, np.inf, 2.0]
    with np.errstate(all="ignore"):
        want = np.fmod(xs, ys)
    for on in (AVX2, PLAIN):
        kernels, _ = check(kernel, given={"x": xs, "y": ys}, on=on, rtol=0)
        got = np.zeros(40)
        interp.run(kernels[0], [xs, ys, got])
        np.testing.assert_array_equal(got, want)

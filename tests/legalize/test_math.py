"""Every math function on a dense fixed sample, within its stated distance from the exact value.

References are numpy's in float64 for f32 and in longdouble for f64; erf is Python's own.
"""

import math

import numpy as np
import pytest

from ingot import dtypes
from ingot.legalize.math import table
from ingot.loops import ir, visit
from ingot.loops.build import Build
from ingot.schedule.schedule import Schedule
from tests.legalize.common import AVX2, PLAIN, check
from tests.legalize.evaluate import evaluate_function, ulp_error

INF, NAN = np.inf, np.nan
SPECIAL = [0.0, -0.0, INF, -INF, NAN, 1, -1, 0.5, -0.5, 2, -2, 1e-45, -1e-45, 1e-38, 1e-20, -1e-20,
           3e38, -3e38, 88.7, 88.8, -87.3, -103.9, -104.2, 127.99, 128, -149, -150.5, 709.7, 709.8,
           -745, -746, 1023.9, -1074, 9.0, -9.0, 3.95, 0.925, 0.625, 17.5, -17.5]  # fmt: skip


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def erf(x):
    return np.array([math.erf(float(v)) for v in x])


REFERENCE = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "log1p": np.log1p,
    "expm1": np.expm1, "tanh": np.tanh, "erf": erf, "sigmoid": sigmoid,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
}  # fmt: skip

# Where most of the sample lies.
RANGE = {
    "exp": (-104, 89), "exp2": (-150, 129), "log": (0, 50), "log2": (0, 50), "log1p": (-1, 9),
    "rsqrt": (0, 50), "asin": (-1, 1), "acos": (-1, 1), "atanh": (-1, 1), "acosh": (1, 50),
    "erf": (-5, 5), "tanh": (-11, 11), "sin": (-1e5, 1e5), "cos": (-1e5, 1e5), "tan": (-1e5, 1e5),
    "sigmoid": (-104, 40), "sinh": (-90, 90), "cosh": (-90, 90), "expm1": (-20, 89),
}  # fmt: skip
RANGE_F64 = {
    "exp": (-746, 710), "exp2": (-1076, 1025), "sinh": (-711, 711), "cosh": (-711, 711),
    "sigmoid": (-746, 40), "expm1": (-40, 710),
}  # fmt: skip

# Stated bounds in units of the last place.
ULP_F32 = {
    "exp": 1.8, "exp2": 1.25, "expm1": 1.75, "log": 1, "log2": 1.75, "log1p": 1, "sigmoid": 1.8,
    "rsqrt": 1.5, "tanh": 1.5, "erf": 3.4, "sin": 2.5, "cos": 2.5,
}  # fmt: skip
ULP_F64 = {
    "exp": 1.1, "exp2": 1.25, "log": 1, "log2": 1, "log1p": 1, "expm1": 2, "sigmoid": 1.5,
    "rsqrt": 1.5, "sin": 1, "cos": 1, "tan": 2.5, "asin": 3, "acos": 3, "atan": 2, "sinh": 3,
    "cosh": 3, "asinh": 2, "acosh": 2, "atanh": 2, "tanh": 3, "erf": 4,
}  # fmt: skip
POINTS = {"f32": 200_000, "f64": 40_000}


def sample(fn, dtype):
    """Even over the range, dense near zero, spread over all sizes, and the special values."""
    rng = np.random.default_rng(7)
    count = POINTS[dtype.name] // 3
    low, high = RANGE.get(fn, (-50, 50))
    if dtype is dtypes.f64:
        low, high = RANGE_F64.get(fn, (low, high))
    top = 88 if fn in ("sin", "cos", "tan") else 6
    spread = np.exp(rng.uniform(-90, top, count)) * rng.choice([-1, 1], count)
    parts = [np.linspace(low, high, count), rng.standard_normal(count), spread, SPECIAL]
    with np.errstate(over="ignore"):
        x = np.concatenate(parts).astype(dtype.numpy)
    return x


@pytest.mark.parametrize("has_fma", [True, False], ids=["fma", "plain"])
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64], ids=str)
@pytest.mark.parametrize("fn", REFERENCE)
def test_functions_are_within_their_bounds(fn, dtype, has_fma):
    x = sample(fn, dtype)
    wide = x.astype(np.float64 if dtype is dtypes.f32 else np.longdouble)
    with np.errstate(all="ignore"):
        want = REFERENCE[fn](wide)
    got = evaluate_function(lambda v: table.apply(fn, [v]), [dtype], [x], has_fma)
    assert got.dtype == x.dtype
    bounds = ULP_F32 if dtype is dtypes.f32 else ULP_F64
    assert ulp_error(got, want) <= bounds.get(fn, 0.51)


def test_every_function_of_the_grammar_has_a_recipe():
    assert set(table.F64) == set(ir.MATH)
    assert set(REFERENCE) | {"pow", "fmod"} == set(ir.MATH)


@pytest.mark.parametrize("on", [AVX2, PLAIN], ids=lambda t: t.name)
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64], ids=str)
@pytest.mark.parametrize("fn", ["sin", "cos", "tan"])
def test_vectors_with_and_without_large_lanes(fn, dtype, on):
    """The branch for large arguments, as a statement: step by step, in the interpreter."""
    b = Build("wave")
    x = b.param("x", dtype, (24,))
    y = b.compute("y", (24,), lambda i: ir.Math(fn, (x[i],)))
    sch = Schedule(b.finish([y]))
    (loop,) = sch.loops(sch.block("y"))
    sch.vectorize(sch.split(loop, None, 8)[-1])
    values = np.linspace(-3, 3, 24).astype(dtype.numpy)
    values[8:16:3] = 1e30, -2e20, 3e7
    values[17] = 1e35
    (kernel,), notes = check(sch.kernel, {}, on, {"x": values})
    assert any(isinstance(s, ir.If) for s in visit.walk_stmts(kernel.body)) and not notes


PAIRS = [0.0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 1.5, -1.5, INF, -INF, NAN, 1e-40, -1e-40, 1e38,
         -1e38, 1e300, 5e-324, 2.0**53, 2.0**53 + 2, 2.0**24 + 1, -(2.0**31), 1 - 2**-24,
         1 + 2**-23, 7, -7, 1e-3]  # fmt: skip


def pairs(dtype, count):
    rng = np.random.default_rng(3)
    a, b = (m.ravel() for m in np.meshgrid(PAIRS, PAIRS))
    x = [a, np.exp(rng.uniform(-80, 80, count)), rng.uniform(-5, 5, count),
         1 + rng.standard_normal(count) * 1e-3]  # fmt: skip
    y = [b, rng.uniform(-2, 2, count), rng.integers(-20, 20, count),
         rng.standard_normal(count) * 1e4]  # fmt: skip
    with np.errstate(over="ignore"):
        return [np.concatenate(part).astype(dtype.numpy) for part in (x, y)]


@pytest.mark.parametrize("has_fma", [True, False], ids=["fma", "plain"])
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64], ids=str)
def test_pow_has_the_special_cases_of_c99(dtype, has_fma):
    x, y = pairs(dtype, 20_000)
    wide = np.float64 if dtype is dtypes.f32 else np.longdouble
    with np.errstate(all="ignore"):
        want = np.power(x.astype(wide), y.astype(wide))
    got = evaluate_function(lambda a, b: table.apply("pow", [a, b]), [dtype] * 2, [x, y], has_fma)
    assert ulp_error(got, want) <= (0.51 if dtype is dtypes.f32 else 1.5)


def test_fmod_of_f32_is_exact():
    x, y = pairs(dtypes.f32, 30_000)
    with np.errstate(all="ignore"):
        want = np.fmod(x, y)
    got = evaluate_function(lambda a, b: table.apply("fmod", [a, b]), [dtypes.f32] * 2, [x, y])
    np.testing.assert_array_equal(got, want)
    known = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(want[known]))

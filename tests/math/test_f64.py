"""Float64: arguments of every size beside mpmath; zeros, infinities and NaN beside numpy."""

import mpmath
import numpy as np
import pytest

from ingot import dtypes
from ingot.loops import ir
from tests.math import bounds, measure, reference, samples
from tests.math.native import Native

UNARY = sorted(fn for fn, arity in ir.MATH.items() if arity == 1)
POINTS = 400  # of each kind
CHUNK = 1 << 11


def split(fn, *args):
    """(ordinary, others): where numpy says that the exact value is a number that is not zero."""
    with np.errstate(all="ignore"):
        near = reference.WIDE[fn](*args)
    ordinary = np.isfinite(np.stack(args)).all(0) & ~np.isnan(near) & (near != 0)
    ordinary &= np.isfinite(near) | (np.stack(args) != 0).all(0)
    return ordinary, ~ordinary, near


def check(fn, *args):
    got = Native(fn, dtypes.f64, CHUNK)(*args)
    ordinary, others, near = split(fn, *args)
    exact = reference.exact_values(fn, *(a[ordinary] for a in args))
    worst = measure.sweep_f64(got[ordinary], exact, *(a[ordinary] for a in args))
    assert worst.ulp <= bounds.F64[fn], f"{fn}: {worst}"
    np.testing.assert_array_equal(got[others], near[others])
    known = others & ~np.isnan(near)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(near[known]))


@pytest.mark.parametrize("fn", UNARY)
def test_samples_of_all_sizes(fn):
    x = samples.sample_f64(fn, POINTS)
    check(fn, np.concatenate([x, [0.0, -0.0, np.inf, -np.inf, np.nan]]))


def test_powers():
    check("pow", *samples.pairs(8000, np.float64))


def test_remainders_are_exact():
    x, y = samples.pairs(200_000, np.float64)
    got = Native("fmod", dtypes.f64, CHUNK)(x, y)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, np.fmod(x, y))


def test_the_float_closest_to_a_quarter_turn_keeps_its_digits():
    x = np.array([6381956970095103 * 2.0**797] * 8)
    got = Native("cos", dtypes.f64, 8)(x)[0]
    assert abs(got) < 1e-18
    with mpmath.workprec(200):
        assert abs(mpmath.mpf(float(got)) / mpmath.cos(mpmath.mpf(float(x[0]))) - 1) < 2.0**-52

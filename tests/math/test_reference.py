"""The references themselves: float64 libraries beside mpmath, and the measuring stick."""

import mpmath
import numpy as np
import pytest

from tests.math import measure, reference, samples

UNARY = sorted(set(reference.WIDE) - {"pow", "fmod"})


@pytest.mark.parametrize("fn", UNARY)
def test_float64_libraries_are_far_better_than_an_ulp_of_f32(fn):
    x = samples.million(fn)[::4001].astype(np.float64)
    with np.errstate(all="ignore"):
        near = reference.WIDE[fn](x)
    x, near = (a[np.isfinite(x) & np.isfinite(near) & (near != 0)] for a in (x, near))
    exact = reference.exact_values(fn, x)
    assert max(abs(mpmath.mpf(float(a)) / b - 1) for a, b in zip(near, exact)) < 2.0**-48


def distance(got, want):
    return measure.distances_f32(np.float32([got]), np.float64([want]))[0]


def test_distances_are_in_units_of_the_last_place():
    assert distance(1.0, 1.0) == 0
    assert distance(1 + 2.0**-23, 1.0) == 1
    assert distance(1 - 2.0**-24, 1.0) == 0.5
    assert distance(2.0**-149, 0.0) == 1
    assert distance(2.0**-149, 2.0**-150) == 0.5
    assert distance(np.inf, 2.0**128) == 0
    assert distance(3.4028234663852886e38, 2.0**129) == 1


def test_another_kind_of_value_is_infinitely_far():
    assert distance(0.0, -0.0) == np.inf
    assert distance(-0.0, 2.0**-200) == np.inf
    assert distance(np.nan, 1.0) == np.inf
    assert distance(1.0, np.nan) == np.inf
    assert distance(np.nan, np.nan) == 0


def test_float64_is_measured_alike():
    one = mpmath.mpf(1)
    assert measure.distance_f64(1.0, one) == 0
    assert measure.distance_f64(1 + 2.0**-52, one) == 1
    assert measure.distance_f64(2.0**-1074, mpmath.mpf(2) ** -1075) == 0.5
    assert measure.distance_f64(np.inf, mpmath.mpf(2) ** 1024) == 0
    assert measure.distance_f64(-0.0, mpmath.mpf(2) ** -2000) == np.inf

"""What counts as wrong: rounding does not, everything else does."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from ingot.inspect.difference import compare

X = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)


def found(got: np.ndarray, exact: np.ndarray, own: np.ndarray | None = None, **given):
    with np.errstate(over="ignore"):
        own = exact.astype(got.dtype) if own is None else own
    return compare("x", got, exact, own, **given)


def test_rounding_is_right_and_ulps_are_counted():
    exact = X.astype(np.float64)
    assert not found(X, exact).is_wrong
    up = X.copy()
    up[2, 3] = np.nextafter(X[2, 3], np.float32(np.inf))
    difference = found(up, exact)
    assert not difference.is_wrong and difference.worst == (2, 3) and difference.ulps == 1.0


def test_one_wrong_element_is_wrong():
    wrong = X.copy()
    wrong[7, 15] += 0.01
    difference = found(wrong, X.astype(np.float64))
    assert difference.is_wrong and difference.worst == (7, 15)
    assert np.isclose(difference.norm, 0.01 / np.linalg.norm(X), rtol=1e-3)


def test_what_the_interpreter_cannot_do_better_is_right():
    exact = X.astype(np.float64)
    off = (X * np.float32(1.0001)).astype(np.float32)
    assert found(off, exact).is_wrong
    assert not found(off, exact, own=off).is_wrong
    assert not found(off, exact, moved=exact * 1.0001).is_wrong


def test_nan_and_infinity_are_values():
    exact = X.astype(np.float64)
    lost = X.copy()
    lost[0, 0] = np.nan
    assert found(lost, exact).is_wrong and found(X, lost.astype(np.float64)).is_wrong
    assert not found(lost, lost.astype(np.float64)).is_wrong
    large = np.full(4, 1e300)
    assert not found(np.full(4, np.inf, np.float32), large).is_wrong
    assert found(np.full(4, -np.inf, np.float32), large).is_wrong


def test_another_shape_is_wrong():
    assert found(X[:4], X.astype(np.float64)).is_wrong


def test_narrow_floats_have_larger_units():
    near = X.astype(ml_dtypes.bfloat16)
    assert not found(near, X.astype(np.float64), own=near).is_wrong
    assert found(near, X.astype(np.float64), own=X).is_wrong


def test_whole_numbers_are_equal_unless_floats_were_rounded():
    n = np.arange(100, dtype=np.int8)
    off = n.copy()
    off[5] += 1
    assert found(off, n, reads_floats=False).is_wrong
    assert not found(off, n).is_wrong
    off[5] += 2
    assert found(off, n).is_wrong
    flag = np.zeros(10, bool)
    assert found(~flag, flag).is_wrong


def test_texts():
    a, b = np.array(["x", "y"], object), np.array(["x", "z"], object)
    assert found(a, b, own=b).is_wrong and not found(a, a, own=a).is_wrong

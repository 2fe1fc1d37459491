"""Element types against numpy and ml_dtypes."""

from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest

from ingot import dtypes
from ingot.dtypes import TABLE, DType, Family

ALL = list(TABLE.values())
FLOATS = [d for d in ALL if d.is_float]
INTS = [d for d in ALL if d.is_int]


def cast(value: float, dtype: DType) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.array(value, np.float32).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_integer_limits(dtype):
    info = ml_dtypes.iinfo(dtype.numpy) if dtype.bits < 8 else np.iinfo(dtype.numpy)
    assert (dtype.lowest, dtype.highest) == (info.min, info.max)
    assert dtype.is_signed == (info.min < 0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_limits_are_identities(dtype):
    """max(lowest, v) is v and min(highest, v) is v for every value of the type."""
    info = ml_dtypes.finfo(dtype.numpy)
    assert dtype.lowest <= float(info.min) and dtype.highest >= float(info.max)
    for limit in (dtype.lowest, dtype.highest):
        assert float(np.array(limit, np.float64).astype(dtype.numpy)) == limit
    has_infinity = bool(np.isinf(cast(float("inf"), dtype).astype(np.float32)))
    assert np.isinf(dtype.highest) == has_infinity


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_names_sizes_and_identity(dtype):
    assert dtypes.of(dtype.name) is dtype
    assert dtypes.from_numpy(dtype.numpy) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert dtype.storage_bytes == dtype.numpy.itemsize
    assert repr(dtype) == dtype.name
    assert sum((dtype.is_float, dtype.is_int, dtype.is_bool, dtype.is_string)) == 1


def test_bool():
    assert dtypes.bool_.family is Family.BOOL and not dtypes.bool_.is_signed
    assert (dtypes.bool_.lowest, dtypes.bool_.highest) == (0, 1)


def test_types_without_a_counterpart_are_refused():
    for unknown in (np.dtype("U3"), np.dtype(np.complex64), np.dtype(object)):
        with pytest.raises(KeyError):
            dtypes.from_numpy(unknown)
    with pytest.raises(KeyError):
        dtypes.of("f31")

"""The schedules of benchmarks/row_reductions.py: right, and whole vectors all the way."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

from tests.kernels.samples import floats


@pytest.fixture
def rows(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return importlib.import_module("row_reductions")


def test_softmax(rows):
    fast = rows.softmax.schedule(rows.schedule_softmax)
    x = floats(rows.ROWS, rows.COLUMNS) * 10
    x[1, :700] = -np.inf
    x[2, 5] = np.nan
    want = np.empty_like(x)
    rows.softmax_by_numpy(x, want)
    np.testing.assert_allclose(fast(x), want, rtol=1e-5, atol=1e-7)
    legal = fast.source("legal")
    assert 'lane_reduce("max"' in legal and 'lane_reduce("add"' in legal
    assert "mask" not in legal


def test_layer_norm(rows):
    fast = rows.layer_norm.schedule(rows.schedule_layer_norm)
    x, g, b = floats(rows.ROWS, rows.COLUMNS), floats(rows.COLUMNS), floats(rows.COLUMNS)
    want = np.empty_like(x)
    rows.layer_norm_by_numpy(x, g, b, want)
    np.testing.assert_allclose(fast(x, g, b), want, rtol=1e-4, atol=1e-5)
    assert "mask" not in fast.source("legal")

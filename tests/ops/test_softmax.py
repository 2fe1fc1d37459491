"""Softmax, LogSoftmax and Hardmax against ONNX Runtime, old semantics and masked rows included."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.graph.opdef import lookup
from tests.ops.peers import check, check_kernel

X = np.random.default_rng(7).standard_normal((2, 3, 4, 5)).astype(np.float32)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("opset", [11, 13])
def test_both_semantics(op, axis, opset):
    check(op, [X], opset=opset, axis=axis, dynamic=(0, 2))


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_default_axis_changed_in_opset_13(op):
    check(op, [X], opset=11)
    check(op, [X], opset=13)


@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_kernels_of_unknown_size(op, axis):
    check_kernel(op, [X[0]], {"axis": axis}, {0: (0, 1, 2)})


def test_a_fully_masked_row_is_nan_and_only_it():
    x = np.array([[-np.inf, -np.inf], [0, -np.inf]], np.float32)
    check("Softmax", [x])
    (got,) = lookup("softmax").reference([x], {"axis": -1})
    assert np.isnan(got[0]).all() and got[1].tolist() == [1, 0]
    check_kernel("softmax", [x], {"axis": -1}, {0: (0, 1)})


def test_large_values_do_not_overflow():
    x = np.array([[1e4, 1e4 - 1, -1e4]], np.float32)
    check("Softmax", [x])
    check("LogSoftmax", [x])

"""Reductions, argmax, cumsum and topk against ONNX Runtime; kernels of dynamic size."""

from __future__ import annotations

import numpy as np
import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import lookup
from ingot.graph.types import tensor
from tests.ops.peers import check, check_kernel
from tests.refusal import refused

X = np.random.default_rng(1).standard_normal((3, 4, 5)).astype(np.float32)
NAMES = [
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
    "ReduceSumSquare", "ReduceLogSumExp",
]  # fmt: skip


@pytest.mark.parametrize("op", NAMES)
@pytest.mark.parametrize("axes", [(1,), (-1, 0), (0, 1, 2)])
def test_axes_as_attribute_and_operand(op, axes):
    if op != "ReduceSum":
        check(op, [X], opset=12, axes=axes, keepdims=0)
    check(op, [X, np.array(axes)], opset=18, constants=[1], keepdims=1, dynamic=(0, 1))


@pytest.mark.parametrize("op", [*NAMES, "ReduceLogSum"])
def test_no_axes_means_all_of_them(op):
    check(op, [np.abs(X)], opset=18, keepdims=0)


def test_empty_axes_may_mean_nothing_to_reduce():
    empty = np.array([], np.int64)
    check("ReduceSum", [X, empty], opset=18, constants=[1], noop_with_empty_axes=1)
    check("ReduceSum", [X, empty], opset=18, constants=[1], noop_with_empty_axes=0)


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceProd", "ReduceL1"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers(op, dtype):
    x = np.array([[-7, 3, 2], [5, -1, -8]], dtype)
    check(op, [x, np.array([1])], opset=18, constants=[1], keepdims=0)


def test_maximum_propagates_nan():
    x = np.array([[1, np.nan, 3], [-np.inf, -np.inf, -np.inf]], np.float32)
    (got,) = lookup("reduce_max").reference([x], {"axes": (1,), "keepdims": False})
    assert np.isnan(got[0]) and got[1] == -np.inf


def test_log_sum_exp_does_not_overflow():
    x = np.array([[1000, 1001], [-2000, -2000]], np.float32)
    (got,) = lookup("reduce_log_sum_exp").reference([x], {"axes": (1,), "keepdims": False})
    np.testing.assert_allclose(got, [1001.31326, -1999.30685], rtol=1e-6)


@pytest.mark.parametrize("op", ["reduce_sum", "reduce_mean", "reduce_max", "reduce_log_sum_exp"])
@pytest.mark.parametrize("size", [0, 1, 6])
def test_kernels_of_unknown_size_even_none(op, size):
    x = np.random.default_rng(2).standard_normal((3, size)).astype(np.float32)
    check_kernel(op, [x], {"axes": (1,), "keepdims": False}, {0: (0, 1)})


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("axis", [0, -1])
def test_arg_extremes_choose_the_right_one_of_equals(op, last, axis):
    x = np.array([[1, 3, 3, 2], [0, 0, 0, 0], [3, -1, -1, 3]], np.float32)
    check(op, [x], opset=13, axis=axis, select_last_index=last, keepdims=0, dynamic=(0, 1))
    check(op, [x.astype(np.int32)], opset=13, axis=axis, select_last_index=last)


def test_argmax_takes_the_first_nan():
    x = np.array([[1, np.nan, 3, np.nan]], np.float32)
    for last, index in ((False, 1), (True, 3)):
        attrs = {"axis": 1, "keepdims": False, "select_last": last}
        assert lookup("argmax").reference([x], attrs)[0].tolist() == [index]
        check_kernel("argmax", [x], attrs, {0: (1,)})


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cumsum(exclusive, reverse):
    axis = np.array(-2, np.int32)
    check("CumSum", [X, axis], constants=[1], exclusive=exclusive, reverse=reverse)
    attrs = {"axis": 1, "exclusive": bool(exclusive), "reverse": bool(reverse)}
    check_kernel("cumsum", [X], attrs, {0: (0, 1, 2)})


@pytest.mark.parametrize("largest", [0, 1])
def test_topk_is_stable(largest):
    x = np.array([[3, 1, 3, 2, 1], [0, 0, 0, 0, 0]], np.float32)
    outputs = ("values", "indices")
    check("TopK", [x, np.array([3])], outputs=outputs, constants=[1], largest=largest)
    check("TopK", [X, np.array([2])], outputs=outputs, constants=[1], largest=largest, axis=1)


def test_topk_of_a_computed_number():
    x = tensor(dtypes.f32, 4, arith.Var("n"))
    values, indices = lookup("topk").infer([x], {"axis": 1, "k": arith.Var("k"), "largest": True})
    assert str(values) == "f32[4, k]" and str(indices) == "i64[4, k]"


def test_topk_of_too_many_is_refused():
    with refused("bad-type", "k", 9, 4, where="topk", hint=False):
        lookup("topk").infer([tensor(dtypes.f32, 4)], {"axis": 0, "k": 9, "largest": True})

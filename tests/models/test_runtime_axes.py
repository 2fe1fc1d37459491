"""Axes that are inputs of a model: one compiled function for all of them, as ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import ingot
from tests.refusal import refused

X = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
ONES = X[:, :1, :, :1]  # sizes 2, 1, 4, 1


def model(op: str, rank: int | None, count: int | None, **attrs) -> onnx.ModelProto:
    """One node of x and axes; no count: the axis is a scalar."""
    node = helper.make_node(op, ["x", "axes"], ["y"], name="the_node", **attrs)
    shape = [f"n{i}" for i in range(4)]
    axes = [] if count is None else [count]
    out = None if rank is None else [None] * rank
    graph = helper.make_graph(
        [node],
        op,
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
            helper.make_tensor_value_info("axes", TensorProto.INT64, axes),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


CASES = [
    ("ReduceSum", {"keepdims": 1}, X, [[0, 2], [3, -4], [1, -1]]),
    ("ReduceSum", {"keepdims": 0}, X, [[0, 2], [3, -4], [1, -1]]),
    ("ReduceMean", {"keepdims": 0}, X, [[1], [-1], [0]]),
    ("ReduceMax", {"keepdims": 1}, X, [[0, 1, 2, 3]]),
    ("ReduceL2", {"keepdims": 0}, X, [[3, 0, 1, 2]]),
    ("CumSum", {}, X, [1, -1, 0]),
    ("CumSum", {"exclusive": 1, "reverse": 1}, X, [2, -2]),
    ("Squeeze", {}, ONES, [[1], [3], [-1]]),
    ("Unsqueeze", {}, X, [[0, 5], [2, 3], [-1, 1]]),
]


@pytest.mark.parametrize(("op", "attrs", "x", "choices"), CASES)
def test_axes_at_run_time_agree_with_onnxruntime(op, attrs, x, choices):
    count = None if np.ndim(choices[0]) == 0 else len(choices[0])
    kept = {"Squeeze": -1, "Unsqueeze": 1, "CumSum": 0}.get(op, -(1 - attrs.get("keepdims", 1)))
    proto = model(op, 4 + kept * (count or 0), count, **attrs)
    exe = ingot.compile(proto)
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for axes in choices:
        feeds = {"x": x, "axes": np.array(axes, np.int64)}
        (got,), (want,) = exe.run(None, feeds), session.run(None, feeds)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_an_axis_out_of_range_fails_the_run():
    exe = ingot.compile(model("ReduceSum", 4, 1, keepdims=1))
    with refused("run-failed", "an axis is out of range", where="the_node", hint=False):
        exe.run(None, {"x": X, "axes": np.array([4])})
    with refused("run-failed", "an axis is out of range", hint=False):
        exe.run(None, {"x": X, "axes": np.array([-5])})


def test_squeezing_an_axis_that_is_not_one_fails_the_run():
    exe = ingot.compile(model("Squeeze", 3, 1))
    with refused("run-failed", where="the_node", hint=False):
        exe.run(None, {"x": X, "axes": np.array([1])})


def test_a_number_of_axes_that_is_not_known_is_refused():
    proto = model("ReduceSum", None, 1, keepdims=0)
    proto.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "k"
    with refused("unsupported-op", where="the_node", why="number of axes", hint="fixed"):
        ingot.compile(proto)


# --- slices and shapes ---------------------------------------------------------------------------


def by_inputs(op: str, rank: int, count: int, *names: str, **attrs) -> onnx.ModelProto:
    """One node of x and i64 vectors; x is 2 x 3 x 4 x 5."""
    node = helper.make_node(op, ["x", *names], ["y"], name="the_node", **attrs)
    graph = helper.make_graph(
        [node],
        op,
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 4, 5]),
            *(helper.make_tensor_value_info(n, TensorProto.INT64, [count]) for n in names),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * rank)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def agrees(proto: onnx.ModelProto, rows: list[dict[str, list[int]]], x: np.ndarray = X) -> None:
    exe = ingot.compile(proto)
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for row in rows:
        feeds = {"x": x, **{name: np.array(v, np.int64) for name, v in row.items()}}
        (got,), (want,) = exe.run(None, feeds), session.run(None, feeds)
        assert got.shape == want.shape, row
        np.testing.assert_array_equal(got, want)


LAST = np.iinfo(np.int64).max


def test_slices_at_run_time_agree_with_onnxruntime():
    rows = [
        {"starts": [0, 1], "ends": [2, LAST], "axes": [1, 3], "steps": [1, 2]},
        {"starts": [-1, 4], "ends": [-LAST, 0], "axes": [2, -1], "steps": [-1, -2]},
        {"starts": [1, 100], "ends": [1, 200], "axes": [0, 1], "steps": [1, 3]},
        {"starts": [-100, -2], "ends": [100, -1], "axes": [3, 0], "steps": [4, 1]},
    ]
    agrees(by_inputs("Slice", 4, 2, "starts", "ends", "axes", "steps"), rows)
    rows = [{name: row[name] for name in ("starts", "ends", "axes")} for row in (rows[0], rows[2])]
    agrees(by_inputs("Slice", 4, 2, "starts", "ends", "axes"), rows)


def test_slices_at_run_time_with_steps_that_overflow():
    rows = [
        {"starts": [1, -1], "ends": [LAST, -LAST], "axes": [2, 3], "steps": [LAST, -LAST]},
        {"starts": [3, 0], "ends": [0, LAST], "axes": [1, 3], "steps": [LAST, LAST]},
    ]
    agrees(by_inputs("Slice", 4, 2, "starts", "ends", "axes", "steps"), rows)


def test_slices_at_run_time_of_an_empty_axis():
    proto = by_inputs("Slice", 4, 1, "starts", "ends", "axes", "steps")
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "n"
    rows = [{"starts": [-1], "ends": [-LAST], "axes": [1], "steps": [s]} for s in (-1, 1, -2)]
    agrees(proto, rows, X[:, :0])


def test_a_step_of_zero_fails_the_run():
    exe = ingot.compile(by_inputs("Slice", 4, 1, "starts", "ends", "axes", "steps"))
    zero = np.zeros(1, np.int64)
    with refused("run-failed", "a step is zero", where="the_node", hint=False):
        exe.run(None, {"x": X, "starts": zero, "ends": zero + 1, "axes": zero, "steps": zero})


def test_reshapes_at_run_time_agree_with_onnxruntime():
    rows = [{"shape": s} for s in ([6, 4, 5], [-1, 2, 10], [0, 0, 20], [0, -1, 1], [5, 24, 1])]
    agrees(by_inputs("Reshape", 3, 3, "shape"), rows)
    exe = ingot.compile(by_inputs("Reshape", 3, 3, "shape"))
    with refused("run-failed", where="the_node", hint=False):
        exe.run(None, {"x": X, "shape": np.array([7, -1, 2])})
    with refused("run-failed", "more than one -1", where="the_node", hint=False):
        exe.run(None, {"x": X, "shape": np.array([-1, 120, -1])})


def test_expansions_at_run_time_agree_with_onnxruntime():
    rows = [{"shape": s} for s in ([2, 3, 4, 5], [1, 1, 1, 1], [1, 3, 1, 5])]
    agrees(by_inputs("Expand", 4, 4, "shape"), rows)
    proto = by_inputs("Expand", 5, 5, "shape")
    agrees(proto, [{"shape": s} for s in ([3, 2, 3, 4, 5], [1, 1, 1, 1, 1])])
    with refused("run-failed", where="the_node", hint=False):
        ingot.compile(proto).run(None, {"x": X, "shape": np.array([1, 2, 4, 4, 5])})


def test_slices_by_a_number_of_values_that_is_not_known_are_refused():
    proto = by_inputs("Slice", 4, 1, "starts", "ends", "axes", "steps")
    for given in proto.graph.input[1:]:
        given.type.tensor_type.shape.dim[0].dim_param = "k"
    with refused("unsupported-op", where="the_node", why="number of axes", hint="fixed"):
        ingot.compile(proto)

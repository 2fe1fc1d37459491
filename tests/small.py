"""A small model for tests of entry points: y = relu(x @ w + b), its row sums z; dynamic batch."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WEIGHT = np.arange(12, dtype=np.float32).reshape(4, 3) / 7 - 0.5
BIAS = np.array([0.25, -0.5, 0.125], np.float32)


def small_model() -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"], name="product"),
        helper.make_node("Add", ["xw", "b"], ["sum"], name="bias"),
        helper.make_node("Relu", ["sum"], ["y"], name="act"),
        helper.make_node("ReduceSum", ["y", "last"], ["z"], name="rows", keepdims=0),
    ]
    constants = {"w": WEIGHT, "b": BIAS, "last": np.array([1], np.int64)}
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3]),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, ["batch"]),
        ],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, producer_name="tests"
    )


def answers(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    y = np.maximum(x @ WEIGHT + BIAS, 0)
    return y, y.sum(1)

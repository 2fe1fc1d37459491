"""Sizes may have any name, those of our own loops included."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
from tests.models.peers import assert_agree, onnxruntime_answers


def model(size: str) -> onnx.ModelProto:
    """A matmul, a convolution, and a sum over a dynamic axis."""
    rng = np.random.default_rng(0)
    weights = {"w": (64, 32), "f": (8, 4, 3, 3)}
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["a", "w"], ["product"]),
            helper.make_node("Conv", ["image", "f"], ["map"], pads=[1, 1, 1, 1]),
            helper.make_node("ReduceSum", ["open"], ["total"], keepdims=0),
        ],
        "names",
        [
            helper.make_tensor_value_info("a", TensorProto.FLOAT, [30, 64]),
            helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 4, 9, 9]),
            helper.make_tensor_value_info("open", TensorProto.FLOAT, [size]),
        ],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            for name in ("product", "map", "total")
        ],
        [
            numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
            for name, shape in weights.items()
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("size", ["k", "i", "k_2", "i_2", "vi", "matmul"])
def test_a_size_called_like_a_loop(size):
    rng = np.random.default_rng(1)
    shapes = {"a": (30, 64), "image": (1, 4, 9, 9), "open": (13,)}
    feeds = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    proto = model(size)
    got, want = ingot.compile(proto).run(None, feeds), onnxruntime_answers(proto, feeds)
    for a, b in zip(got, want, strict=True):
        assert_agree(a, b)

"""Every optimisation can be switched off; outputs stay the same."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info
from onnx.numpy_helper import from_array

import ingot
from ingot.support import options


@pytest.mark.parametrize("name", options.FEATURES)
def test_any_optimisation_can_be_switched_off(name, tmp_path):
    """The outputs stay the same."""
    model = tmp_path / "mixed.onnx"
    model.write_bytes(mixed_model())
    random = np.random.default_rng(3)
    feeds = {"x": random.standard_normal((1, 24, 9, 70), dtype=np.float32),
             "b": random.standard_normal((70, 133), dtype=np.float32)}  # fmt: skip
    (usual,) = ingot.compile(model)(**feeds)
    with options.override(off={name}):
        (without,) = ingot.compile(model)(**feeds)
    np.testing.assert_allclose(usual, without, rtol=1e-4, atol=1e-5)


def mixed_model() -> bytes:
    """Convolutions with a squeeze-and-excite between them, a transpose, a softmax, a concat and a
    product by an operand of the call."""
    random = np.random.default_rng(4)
    weights = [
        from_array(random.standard_normal(shape).astype(np.float32) / 15, name)
        for name, shape in (("w", (24, 24, 3, 3)), ("v", (20, 24, 1, 1)))
    ]
    nodes = [
        make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        make_node("GlobalAveragePool", ["a"], ["mean"]),
        make_node("Sigmoid", ["mean"], ["scale"]),
        make_node("Mul", ["a", "scale"], ["scaled"]),
        make_node("Conv", ["scaled", "v"], ["c"]),
        make_node("Transpose", ["c"], ["t"], perm=[0, 2, 1, 3]),
        make_node("Softmax", ["t"], ["s"], axis=-1),
        make_node("Concat", ["s", "t"], ["j"], axis=2),
        make_node("MatMul", ["j", "b"], ["y"]),
    ]
    shapes = {"x": (1, 24, 9, 70), "b": (70, 133)}
    inputs = [make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    outputs = [make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = make_graph(nodes, "mixed", inputs, outputs, weights)
    return make_model(graph, opset_imports=[make_opsetid("", 18)]).SerializeToString()


def test_long_sums_are_more_exact_in_parts(tmp_path):
    """Against float64: an accumulator's error grows with the number of its terms."""
    random = np.random.default_rng(5)
    a, b = (random.standard_normal(s, dtype=np.float32) for s in ((30, 4608), (4608, 20)))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    product = make_node("MatMul", ["a", "b"], ["y"])
    inputs = [make_tensor_value_info("a", TensorProto.FLOAT, a.shape)]
    outputs = [make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = make_graph([product], "long", inputs, outputs, [from_array(b, "b")])
    model = tmp_path / "long.onnx"
    model.write_bytes(make_model(graph, opset_imports=[make_opsetid("", 18)]).SerializeToString())

    def error() -> float:
        (y,) = ingot.compile(model)(a=a)
        return float(np.sqrt(np.mean((y - exact) ** 2)))

    in_parts = error()
    with options.override(off={"partial_sums"}):
        assert 2 * in_parts < error()

"""Quantised operators are exact: every bit of the compiled result is ONNX Runtime's, without its
optimisations.

x / scale is a division and not a product with the reciprocal, ties round to even, sums are i32, and
a dequantised sum is rounded before its bias is added. A last bit that differs would be amplified:
the next quantisation turns it into a whole step (docs/design-notes.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

import ingot

onnxruntime.set_default_logger_severity(4)


def model(
    nodes: Sequence[NodeProto], shapes: dict[str, list], outputs: Sequence[str],
    constants: dict[str, np.ndarray],
) -> ModelProto:  # fmt: skip
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    weights = [numpy_helper.from_array(x, name) for name, x in constants.items()]
    results = [ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "exact", inputs, results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def assert_exact(proto: ModelProto, feeds: Sequence[dict[str, np.ndarray]]) -> None:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    exe = ingot.compile(proto)
    for feed in feeds:
        made = exe(**feed)
        got = made if isinstance(made, list | tuple) else [made]
        for a, b in zip(got, session.run(None, feed), strict=True):
            np.testing.assert_array_equal(np.asarray(a), b)


def arrays(*shape: int, count: int = 8) -> list[dict[str, np.ndarray]]:
    """Ranges over many magnitudes, on both sides of zero or on one; zeros; a constant."""
    found = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal(shape) * 10.0 ** rng.uniform(-6, 6)
        found.append({"x": (np.abs(x) if seed == 1 else -np.abs(x) if seed == 2 else x)})
    found += [{"x": np.zeros(shape)}, {"x": np.full(shape, -2.5)}]
    return [{"x": feed["x"].astype(np.float32)} for feed in found]


def node(op: str, inputs: str, outputs: str, **attrs) -> NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attrs)


def test_dynamic_quantize_linear() -> None:
    proto = model(
        [node("DynamicQuantizeLinear", "x", "q s z")], {"x": ["n", 33]}, ["q", "s", "z"], {}
    )
    assert_exact(proto, arrays(21, 33, count=24))


MORE_TIES = [(dtype, scale) for dtype in (np.uint8, np.int8, np.uint16) for scale in (0.007, 3)]


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [
        (np.uint8, 0.1),
        (np.int16, 0.1),
        *(pytest.param(*row, marks=pytest.mark.long) for row in MORE_TIES),
    ],
)
def test_quantize_linear_at_ties(dtype: type, scale: float) -> None:
    """Halves of steps, and numbers where x · (1 / scale) rounds to another side than x / scale."""
    limits = np.iinfo(dtype)
    scale = np.float32(scale)
    constants = {"s": np.array(scale), "z": np.array(limits.max // 3, dtype)}
    proto = model([node("QuantizeLinear", "x s z", "q")], {"x": ["n"]}, ["q"], constants)
    steps = np.arange(limits.min - 9, limits.max + 9, max(1, (limits.max - limits.min) // 999))
    ties = ((steps + 0.5) * np.float64(scale)).astype(np.float32)
    around = np.concatenate([ties, np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf)])
    around = around.astype(np.float32)
    by_reciprocal = np.rint(around * (np.float32(1) / scale))
    assert (by_reciprocal != np.rint(around / scale)).any()
    assert_exact(proto, [{"x": around}])


def dynamic_layer(x: str, y: str, tag: str) -> list[NodeProto]:
    """A dense layer as onnxruntime.quantization writes it."""
    return [
        node("DynamicQuantizeLinear", x, f"q{tag} s{tag} z{tag}"),
        node("MatMulInteger", f"q{tag} w{tag} z{tag} wz{tag}", f"sum{tag}"),
        node("Cast", f"sum{tag}", f"real{tag}", to=TensorProto.FLOAT),
        node("Mul", f"s{tag} ws{tag}", f"scale{tag}"),
        node("Mul", f"real{tag} scale{tag}", f"scaled{tag}"),
        node("Add", f"b{tag} scaled{tag}", f"biased{tag}"),
        node("Relu", f"biased{tag}", y),
    ]


def dense(rows: int, columns: int, tag: str, dtype: type = np.int8) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(rows * columns)
    limits = np.iinfo(dtype)
    return {
        f"w{tag}": rng.integers(limits.min, limits.max + 1, (rows, columns)).astype(dtype),
        f"wz{tag}": np.array(3, dtype), f"ws{tag}": np.array(0.0123, np.float32),
        f"b{tag}": rng.standard_normal(columns).astype(np.float32),
    }  # fmt: skip


def test_three_dynamic_layers() -> None:
    """Fused: only the last value is an output. One bit in the first layer would change it."""
    nodes = [*dynamic_layer("x", "y0", "0"), *dynamic_layer("y0", "y1", "1"),
             *dynamic_layer("y1", "y", "2")]  # fmt: skip
    constants = dense(56, 64, "0") | dense(64, 384, "1") | dense(384, 17, "2", np.uint8)
    assert_exact(model(nodes, {"x": ["n", 56]}, ["y"], constants), arrays(21, 56))


def test_sums_are_integers() -> None:
    """Sums beyond 2^24, where f32 has no odd numbers."""
    depth = 4097
    x = np.full((3, depth), 1.0, np.float32)
    x[1:, ::2] = 254 / 255
    constants = {"w": np.full((depth, 5), 127, np.int8)}
    nodes = [node("DynamicQuantizeLinear", "x", "q s z"), node("MatMulInteger", "q w z", "y")]
    proto = model(nodes, {"x": ["n", depth]}, ["y"], constants)
    assert (254 * 127 * depth > 1 << 24) and depth % 2
    assert_exact(proto, [{"x": x}])


def test_dynamic_convolution() -> None:
    rng = np.random.default_rng(5)
    constants = {
        "w": rng.integers(-128, 128, (6, 4, 3, 3)).astype(np.int8), "wz": np.array(-2, np.int8),
        "ws": np.array(0.02, np.float32), "b": rng.standard_normal((6, 1, 1)).astype(np.float32),
    }  # fmt: skip
    nodes = [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("ConvInteger", "q w z wz", "sum", pads=[1, 0, 1, 2], strides=[2, 1]),
        node("Cast", "sum", "real", to=TensorProto.FLOAT), node("Mul", "s ws", "scale"),
        node("Mul", "real scale", "scaled"), node("Add", "scaled b", "y"),
    ]  # fmt: skip
    proto = model(nodes, {"x": ["n", 4, 9, 8]}, ["y"], constants)
    assert_exact(proto, arrays(2, 4, 9, 8))


@pytest.mark.parametrize("op", ["QLinearMatMul", "QLinearConv"])
def test_requantised_sums(op: str) -> None:
    rng = np.random.default_rng(6)
    is_conv = op == "QLinearConv"
    w = rng.integers(-128, 128, (6, 4, 3, 3) if is_conv else (40, 6)).astype(np.int8)
    constants = {
        "xs": np.array(0.031, np.float32), "xz": np.array(117, np.uint8), "w": w,
        "ws": np.abs(rng.standard_normal(6)).astype(np.float32) * np.float32(0.01),
        "wz": np.zeros(6, np.int8), "ys": np.array(0.047, np.float32),
        "yz": np.array(99, np.uint8),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", "x xs xz", "q"),
        node(op, "q xs xz w ws wz ys yz", "p"),
        node("DequantizeLinear", "p ys yz", "y"),
    ]
    shape = (2, 4, 9, 8) if is_conv else (33, 40)
    proto = model(nodes, {"x": ["n", *shape[1:]]}, ["p", "y"], constants)
    feeds = [
        {"x": np.random.default_rng(n).standard_normal(shape).astype(np.float32)} for n in range(6)
    ]
    assert_exact(proto, feeds)


def with_exact_sigmoids(proto: ModelProto) -> ModelProto:
    """Sigmoid in f64, rounded once: ONNX Runtime's own is up to 3 ulp off."""
    exact = ModelProto()
    exact.CopyFrom(proto)
    del exact.graph.node[:]
    exact.graph.initializer.append(numpy_helper.from_array(np.float64(1), "one"))
    for each in proto.graph.node:
        if each.op_type != "Sigmoid":
            exact.graph.node.append(each)
            continue
        x, y = each.input[0], each.output[0]
        exact.graph.node.extend([
            node("Cast", x, f"{y}0", to=TensorProto.DOUBLE), node("Neg", f"{y}0", f"{y}1"),
            node("Exp", f"{y}1", f"{y}2"), node("Add", f"{y}2 one", f"{y}3"),
            node("Reciprocal", f"{y}3", f"{y}4"), node("Cast", f"{y}4", y, to=TensorProto.FLOAT),
        ])  # fmt: skip
    return exact


def test_dynamic_layers_with_sigmoids() -> None:
    """x · sigmoid(x) between layers of integers: what differs is ONNX Runtime's sigmoid."""
    nodes, names = [], ["x", "y0", "y1", "y"]
    for tag, (x, y) in enumerate(pairwise(names)):
        nodes += dynamic_layer(x, f"r{tag}", str(tag))[:-1]
        nodes += [
            node("Sigmoid", f"biased{tag}", f"g{tag}"), node("Mul", f"biased{tag} g{tag}", y),
        ]  # fmt: skip
    constants = dense(56, 64, "0") | dense(64, 200, "1") | dense(200, 17, "2")
    proto = model(nodes, {"x": ["n", 56]}, ["y"], constants)
    session = onnxruntime.InferenceSession(with_exact_sigmoids(proto).SerializeToString())
    exe = ingot.compile(proto)
    for feed in arrays(40, 56)[3:8]:
        want = session.run(None, feed)[0]
        got = exe(**feed)
        got = np.asarray(got[0] if isinstance(got, list | tuple) else got)
        assert np.abs(got - want).max() <= 1e-3 * np.abs(want).max()

"""Whole QDQ models against ONNX Runtime without optimisations: outputs within a step of the last
quantiser, and no map stored as f32 between layers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import ingot
from ingot import dtypes
from ingot.graph.ir import Graph
from tests.qdq import I8, U8, Net, assert_within_a_step, every_node, stage, stored_floats

TARGET = "x86-64-v3"


def image(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def residual(n: Net) -> tuple[str, float]:
    """Two convolutions and a projection, added; a pool; a dense layer."""
    x = n.q(n.input("x", 1, 3, 24, 24))
    x = n.q(n.node("Relu", n.conv(x, n.weight(16, 3, 3, 3), bias=True, pads=[1] * 4)), 0, 4)
    x = n.q(n.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 0, 4)
    y = n.q(n.node("Relu", n.conv(x, n.weight(24, 16, 3, 3), bias=True, pads=[1] * 4)), 0, 4)
    y = n.q(n.conv(y, n.weight(24, 24, 3, 3), bias=True, pads=[1] * 4, strides=[2, 2]))
    z = n.q(n.conv(x, n.weight(24, 16, 1, 1), bias=True, strides=[2, 2]), -3, 5)
    x = n.q(n.node("Relu", n.node("Add", y, z)), 0, 5)
    y = n.q(n.conv(x, n.weight(24, 24, 1, 1), bias=True))
    x = n.q(n.node("Relu", n.node("Add", y, x)), 0, 6)
    x = n.q(n.node("GlobalAveragePool", x), 0, 3)
    x = n.node("Flatten", x)
    return n.q(n.node("Gemm", x, n.weight(10, 24), transB=1)), 8 / 255


def inverted(n: Net) -> tuple[str, float]:
    """An inverted residual with squeeze-and-excite and SiLU, every step stored in 8 bits."""

    def silu(x: str) -> str:
        x = n.q(x)
        return n.q(n.node("Mul", x, n.q(n.node("Sigmoid", x), 0, 1)), -0.3, 4)

    x = n.q(n.input("x", 2, 16, 15, 15))
    y = silu(n.conv(x, n.weight(48, 16, 1, 1), bias=True))
    y = silu(n.conv(y, n.weight(48, 1, 3, 3), bias=True, group=48, pads=[1] * 4))
    z = n.q(n.node("GlobalAveragePool", y), -0.3, 2)
    z = silu(n.conv(z, n.weight(8, 48, 1, 1), bias=True))
    z = n.q(n.node("Sigmoid", n.q(n.conv(z, n.weight(48, 8, 1, 1), bias=True))), 0, 1)
    y = n.q(n.node("Mul", y, z), -0.3, 4)
    y = n.q(n.conv(y, n.weight(16, 48, 1, 1), bias=True))
    return n.q(n.node("Add", x, y), -8, 8), 16 / 255


def detector(n: Net) -> tuple[str, float]:
    """A map at two sizes: resized, concatenated, transposed, a sigmoid at the end."""
    x = n.q(n.input("x", 1, 8, 16, 16))
    a = n.q(n.node("Relu", n.conv(x, n.weight(16, 8, 3, 3), bias=True, pads=[1] * 4)), 0, 4)
    b = n.q(n.node("Relu", n.conv(a, n.weight(32, 16, 2, 2), bias=True, strides=[2, 2])), 0, 3)
    b = n.q(n.conv(b, n.weight(24, 32, 1, 1), bias=True))
    up = n.node("Resize", b, "", n.constant([1, 1, 2, 2]), mode="nearest", nearest_mode="floor",
                coordinate_transformation_mode="asymmetric")  # fmt: skip
    y = n.q(n.node("Concat", a, n.q(up), axis=1), -4, 4)
    y = n.q(n.conv(y, n.weight(12, 40, 3, 3), bias=True, pads=[1] * 4))
    y = n.q(n.node("Sigmoid", y), 0, 1)
    y = n.node("Reshape", y, n.constant([1, 12, 256], np.int64))
    return n.q(n.node("Transpose", y, perm=[0, 2, 1]), 0, 1), 1 / 255


def transformer(n: Net, rows: int = 48, width: int = 32, heads: int = 2) -> tuple[str, float]:
    def dense(x: str, columns: int, size: int = width) -> str:
        y = n.q(n.node("MatMul", x, n.weight(size, columns, axis=1)))
        return n.node("Add", y, n.constant(n.rng.standard_normal(columns) / 4))

    def head(x: str, *perm: int) -> str:
        split = n.constant([1, rows, heads, width // heads], np.int64)
        return n.q(n.node("Transpose", n.q(n.node("Reshape", x, split)), perm=perm))

    x = n.q(n.input("x", 1, rows, width))
    q, k, v = (n.q(dense(x, width)) for _ in range(3))
    scores = n.node("MatMul", head(q, 0, 2, 1, 3), head(k, 0, 2, 3, 1))
    scores = n.node("Div", n.q(scores, -9, 9), n.constant(4.0))
    weights = n.q(n.node("Softmax", n.q(scores), axis=-1), 0, 1)
    y = n.q(n.node("MatMul", weights, head(v, 0, 2, 1, 3)))
    y = n.node("Reshape", n.node("Transpose", y, perm=[0, 2, 1, 3]),
               n.constant([1, rows, width], np.int64))  # fmt: skip
    x = n.q(n.node("Add", n.q(dense(n.q(y), width)), x))
    ones, zeros = n.constant(np.ones(width)), n.constant(np.zeros(width))
    x = n.q(n.node("LayerNormalization", x, ones, zeros, axis=-1))
    y = n.q(dense(x, 4 * width))
    y = n.q(n.node("Gelu", y), -0.2, 4)
    x = n.q(n.node("Add", n.q(dense(y, width, 4 * width)), x), -6, 6)
    return n.q(n.node("LayerNormalization", x, ones, zeros, axis=-1)), 8 / 255


NETS: dict[str, tuple[Callable[[Net], tuple[str, float]], tuple[int, ...]]] = {
    "residual": (residual, (1, 3, 24, 24)),
    "inverted": (inverted, (2, 16, 15, 15)),
    "detector": (detector, (1, 8, 16, 16)),
    "transformer": (transformer, (1, 48, 32)),
}
KINDS = {"u8 s8": (U8, I8, True), "s8 s8": (I8, I8, True), "u8 u8": (U8, U8, False)}
MORE = [(name, kind) for name in NETS for kind in KINDS]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("inverted", "u8 s8"),
        ("residual", "u8 u8"),
        *(pytest.param(*row, marks=pytest.mark.long) for row in MORE),
    ],
)
def test_whole_networks(name: str, kind: str) -> None:
    make, shape = NETS[name]
    n = Net(*KINDS[kind], opset=20)
    y, step = make(n)
    assert_within_a_step(n.model([y]), {"x": image(*shape)}, step, target=TARGET)


def contractions(graph: Graph) -> list[tuple[str, str]]:
    """Operator and result type, where neither operand is a sum of integers' correction."""
    ops = ("conv", "matmul", "winograd_conv")
    return [(n.op, n.outputs[0].dtype.name) for n in every_node(graph) if n.op in ops]


@pytest.mark.parametrize("name", NETS)
def test_no_map_is_stored_in_f32(name: str) -> None:
    make, _ = NETS[name]
    n = Net(opset=20)
    y, _ = make(n)
    proto = n.model([y])
    early = contractions(stage(proto, "move_zero_points"))
    floats = [op for op, dtype in early if dtype == "f32"]
    assert floats == (["matmul"] * 2 if name == "transformer" else [])
    graph = stage(proto, "fuse")
    assert stored_floats(graph) == []
    reals = ("quantize_linear", "dequantize_linear")
    alone = [n for n in graph.nodes if n.op == "fused" and len(n.attr("body").nodes) == 1]
    first = [n.attr("body").nodes[0].op for n in alone if n.inputs[0] == graph.inputs[0]]
    assert first == ["quantize_linear"]
    others = [n for n in alone[1:] if n.attr("body").nodes[0].op in reals]
    assert all(n.outputs[0] == graph.outputs[0] for n in others)


def test_a_residual_is_one_kernel() -> None:
    """conv → store → add → relu → store: rounding steps in registers, one 8-bit map written."""
    n = Net()
    x = n.q(n.input("x", 1, 16, 12, 12))
    y = n.q(n.conv(x, n.weight(16, 16, 3, 3), bias=True, pads=[1] * 4))
    y = n.q(n.node("Relu", n.node("Add", x, y)), 0, 5)
    graph = stage(n.model([n.q(n.node("Neg", y))]), "fuse")
    groups = [g.attr("body") for g in graph.nodes if g.op == "fused"]
    (body,) = (body for body in groups if any(n.op == "conv" for n in body.nodes))
    assert [n.op for n in body.nodes].count("round") == 3 and body.outputs[0].dtype is dtypes.u8


# --- robustness ----------------------------------------------------------------------------------


def test_dynamic_batch_and_size() -> None:
    n = Net()
    x = n.q(n.input("x", "n", 3, "h", "w"))
    x = n.q(n.node("Relu", n.conv(x, n.weight(8, 3, 3, 3), bias=True, pads=[1] * 4)), 0, 4)
    x = n.q(n.conv(x, n.weight(6, 8, 1, 1)))
    proto = n.model([x])
    for shape in ((1, 3, 9, 11), (3, 3, 6, 5)):
        assert_within_a_step(proto, {"x": image(*shape)}, 8 / 255, target=TARGET)


def test_a_stored_value_that_is_an_output_too() -> None:
    n = Net()
    stored = n.quantised(n.input("x", 2, 16))
    real = n.node("DequantizeLinear", *stored)
    y = n.q(n.node("MatMul", real, n.weight(16, 12, axis=1)))
    exe = assert_within_a_step(
        n.model([y, real, n.node("Neg", real)]), {"x": image(2, 16)}, 8 / 255, target=TARGET
    )
    assert "in float" not in exe.report()


@pytest.mark.parametrize(
    "opset", [10, 21, *(pytest.param(n, marks=pytest.mark.long) for n in (13, 19))]
)
def test_operator_sets(opset: int) -> None:
    """Per tensor before 13; an axis since; other element types since 19."""
    n = Net(per_channel=opset >= 13, opset=opset)
    x = n.q(n.input("x", 1, 3, 10, 10))
    x = n.q(n.conv(x, n.weight(8, 3, 3, 3), pads=[1] * 4))
    proto = n.model([n.q(n.conv(x, n.weight(8, 8, 1, 1)))])
    if opset < 13:
        for node in proto.graph.node:
            if node.op_type == "DequantizeLinear":
                del node.attribute[:]
    assert_within_a_step(proto, {"x": image(1, 3, 10, 10)}, 8 / 255, target=TARGET)
    assert {dtype for _, dtype in contractions(stage(proto, "integer_contractions"))} == {"i32"}


def test_weights_stored_as_floats() -> None:
    """f32 weights that the model itself quantises (quantisation-aware training)."""
    n = Net(weights=I8)
    x = n.q(n.input("x", 1, 3, 10, 10))
    real = n.constant(n.rng.standard_normal((8, 3, 3, 3)) / 9)
    params = n.constant(np.full(8, 0.0041234)), n.constant(np.zeros(8), np.int8)
    w = n.node("DequantizeLinear", n.node("QuantizeLinear", real, *params, axis=0), *params, axis=0)
    proto = n.model([n.q(n.node("Conv", x, w, pads=[1] * 4))])
    assert_within_a_step(proto, {"x": image(1, 3, 10, 10)}, 8 / 255, target=TARGET)
    assert contractions(stage(proto, "integer_contractions")) == [("conv", "i32")]


@pytest.mark.parametrize(("dtype", "bits"), [(np.uint16, 16), (np.int16, 16)])
def test_wide_activations_stay_in_float(dtype: type, bits: int) -> None:
    n = Net(activations=dtype)
    x = n.quantised(n.input("x", 2, 16))
    y = n.node("MatMul", n.node("DequantizeLinear", *x), n.weight(16, 12, axis=1))
    proto = n.model([y])
    exe = ingot.compile(proto, target=TARGET)
    assert "in float: node" in exe.report() and "not quantised to 8 bits" in exe.report()


def test_half_scales_stay_in_float() -> None:
    n = Net()
    scale, zero = n.constant(np.array(0.03), np.float16), n.constant(np.array(9), np.uint8)
    half = n.node("Cast", n.input("x", 2, 16), to=TensorProto.FLOAT16)
    x = n.node("DequantizeLinear", n.node("QuantizeLinear", half, scale, zero), scale, zero)
    w = n.constant(n.rng.integers(-99, 99, (16, 12)), np.int8)
    w = n.node("DequantizeLinear", w, n.constant(np.array(0.01), np.float16))
    proto = n.model([n.node("Cast", n.node("MatMul", x, w), to=TensorProto.FLOAT)])
    graph = stage(proto, "fold_constants_2")
    assert [n.op for n in graph.nodes if n.op == "matmul"] == ["matmul"]
    assert not any(dtype == "i32" for _, dtype in contractions(graph))
    made = ingot.compile(proto, target=TARGET)(image(2, 16))
    assert np.isfinite(np.asarray(made)).all()


def body_of(n: Net, x: str, y: str) -> None:
    """y = a quantised dense layer of x."""
    made = n.q(n.node("MatMul", n.q(x), n.weight(16, 16, axis=1)))
    n.nodes.append(helper.make_node("Identity", [made], [y]))


def looped() -> ModelProto:
    """A recurrence of a quantised dense layer; its weights are constants around the loop."""
    n, inner = Net(), Net()
    inner._count = 1000
    body_of(inner, "state", "next")
    inner.nodes.append(helper.make_node("Identity", ["on"], ["still"]))
    body = helper.make_graph(
        inner.nodes, "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("on", TensorProto.BOOL, []),
         helper.make_tensor_value_info("state", TensorProto.FLOAT, [2, 16])],
        [helper.make_tensor_value_info("still", TensorProto.BOOL, []),
         helper.make_tensor_value_info("next", TensorProto.FLOAT, [2, 16])],
    )  # fmt: skip
    n.constants |= inner.constants
    count, on = n.constant(np.array(3), np.int64), n.constant(np.array(True), np.bool_)
    return n.model([n.node("Loop", count, on, n.input("x", 2, 16), body=body)])


def branching() -> ModelProto:
    n, parts = Net(), []
    n.input("x", 2, 16)
    for start, name in ((1000, "yes"), (2000, "no")):
        inner = Net(seed=start)
        inner._count = start
        body_of(inner, "x", name)
        out = helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 16])
        parts.append(helper.make_graph(inner.nodes, name, [], [out]))
        n.constants |= inner.constants
    total = n.node("ReduceSum", "x", keepdims=0)
    chosen = n.node("Greater", total, n.constant(0.0))
    return n.model([n.node("If", chosen, then_branch=parts[0], else_branch=parts[1])])


@pytest.mark.parametrize("make", [looped, branching])
def test_control_flow(make: Callable[[], ModelProto]) -> None:
    proto = make()
    for seed in (0, 1):
        feeds = {"x": image(2, 16, seed=seed)}
        assert_within_a_step(proto, feeds, 8 / 255, target=TARGET)
    found = contractions(stage(proto, "move_zero_points"))
    assert found and {dtype for _, dtype in found} == {"i32"}


def test_a_padded_and_broadcast_constant() -> None:
    """Ones that only broadcast, quantised between movements."""
    n = Net()
    ones = n.node("Expand", n.constant(np.ones((1, 1))), n.constant([2, 3, 4], np.int64))
    x = n.q(n.input("x", 2, 3, 4))
    y = n.q(n.node("Concat", n.q(ones), x, axis=1))
    y = n.q(n.node("Mul", y, n.q(n.constant(np.ones((6, 1))), 0, 2)))
    assert_within_a_step(n.model([y]), {"x": image(2, 3, 4)}, 8 / 255, target=TARGET)

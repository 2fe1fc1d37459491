"""Scales, zero points and packed weights that make no sense: an error with the node's name, a
reason and a hint, when the model is read. What ONNX Runtime computes sensibly is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as P
from onnx import helper, numpy_helper

import ingot
from tests.refusal import refused

onnxruntime.set_default_logger_severity(4)
F32, U8, I8, I32 = np.float32, np.uint8, np.int8, np.int32
X = np.linspace(-3, 3, 12, dtype=F32).reshape(3, 4)
Q = np.arange(12, dtype=U8).reshape(3, 4)
Constants = dict[str, np.ndarray | onnx.TensorProto]


def node(op: str, inputs: str, name: str = "", output: str = "y", **attrs) -> onnx.NodeProto:
    domain = "com.microsoft" if op in ("MatMulNBits", "QLinearAdd", "QLinearConcat") else ""
    ins = ["" if n == "_" else n for n in inputs.split()]
    return helper.make_node(op, ins, [output], name or f"my {op}", domain=domain, **attrs)


def model(nodes: Sequence[onnx.NodeProto], x: np.ndarray, constants: Constants) -> onnx.ModelProto:
    info = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    tensors = [
        c if isinstance(c, onnx.TensorProto) else numpy_helper.from_array(np.asarray(c), n)
        for n, c in constants.items()
    ]
    graph = helper.make_graph(nodes, "bad", [info], [onnx.ValueInfoProto(name="y")], tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def assert_refused(
    code: str, op: str, inputs: str, x: np.ndarray, constants: Constants, *facts: Any, **attrs
) -> None:
    proto = model([node(op, inputs, **attrs)], x, constants)
    with refused(code, *facts, where=f"my {op}") as caught:
        ingot.compile(proto)
    assert caught.value.why, caught.value


def assert_computed(proto: onnx.ModelProto, x: np.ndarray) -> None:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (want,) = onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, {"x": x})
    (got,) = ingot.compile(proto).run(None, {"x": x})
    np.testing.assert_array_equal(got, want)


# --- scales -------------------------------------------------------------------------------------

BAD_SCALES = {"0": 0.0, "-0": -0.0, "1e-40": 1e-40, "nan": np.nan, "inf": np.inf, "-inf": -np.inf}


@pytest.mark.parametrize("scale", BAD_SCALES.values(), ids=BAD_SCALES)
@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
def test_a_constant_scale_is_a_normal_number(op: str, scale: float) -> None:
    x = X if op == "QuantizeLinear" else Q
    constants: Constants = {"s": np.array(scale, F32), "z": np.array(3, U8)}
    assert_refused("bad-model", op, "x s z", x, constants, "s")


@pytest.mark.parametrize("scale", [0.0, np.nan])
def test_the_first_bad_scale_is_told(scale: float) -> None:
    """Of more scales than constant folding looks at."""
    scales = np.full(300, 0.5, F32)
    scales[[7, 9]] = scale
    x = np.ones((2, 300), F32)
    constants: Constants = {"s": scales, "z": np.zeros(300, U8)}
    assert_refused("bad-model", "QuantizeLinear", "x s z", x, constants, 7, 2, 300, axis=1)


QLINEAR = {"xs": 0.1, "xz": U8(3), "ws": 0.1, "wz": I8(0), "ys": 0.5, "yz": U8(7)}


def qlinear(op: str, **changes: Any) -> tuple[str, str, np.ndarray, Constants]:
    """An operator on quantised tensors, with some operands changed."""
    shape = (4, 5) if op == "QLinearMatMul" else (6, 4, 1, 1)
    x = Q if op == "QLinearMatMul" else np.resize(Q, (1, 4, 3, 3))
    w = np.arange(np.prod(shape)).reshape(shape).astype(I8)
    values = {**QLINEAR, "w": w, **changes}
    kinds = {"xs": F32, "ws": F32, "ys": F32}
    constants = {n: np.asarray(v, kinds.get(n)) for n, v in values.items()}
    names = "x xs xz w ws wz ys yz" + (" b" if "b" in changes else "")
    return op, names, x, constants


@pytest.mark.parametrize("operand", ["xs", "ws", "ys"])
@pytest.mark.parametrize("op", ["QLinearMatMul", "QLinearConv"])
def test_scales_of_operators_on_quantised_tensors(op: str, operand: str) -> None:
    for scale in (0, np.nan, 1e-39):
        assert_refused("bad-model", *qlinear(op, **{operand: scale}), operand)


@pytest.mark.parametrize(
    ("op", "names", "scale"),
    [("QLinearAdd", "x s z x s z bad z", 6), ("QLinearConcat", "s z x s z x bad z", 6)],
)
def test_scales_of_other_operators(op: str, names: str, scale: int) -> None:
    constants: Constants = {"s": F32(0.1), "z": U8(3), "bad": F32(0)}
    attrs = {"axis": 0} if op == "QLinearConcat" else {}
    assert_refused("bad-model", op, names, Q, constants, "bad", scale, **attrs)


@pytest.mark.parametrize("scale", [-0.5, -3.0])
def test_a_negative_scale_is_computed(scale: float) -> None:
    """Also where quantisation is moved over operators that keep the order of numbers."""
    x = np.linspace(-9, 9, 2 * 25, dtype=F32).reshape(1, 2, 5, 5)
    constants: Constants = {"s": F32(scale), "z": U8(99), "t": F32(0.25)}
    nodes = [
        node("QuantizeLinear", "x s z", "q0", "q0"), node("DequantizeLinear", "q0 s z", "d0", "d0"),
        node("Relu", "d0", "r", "r"), node("MaxPool", "r", "p", "p", kernel_shape=[2, 2]),
        node("QuantizeLinear", "p s z", "q1", "q1"), node("DequantizeLinear", "q1 s z", "d1"),
    ]  # fmt: skip
    assert_computed(model(nodes, x, constants), x)


def test_a_scale_of_zero_for_a_block_of_zeros() -> None:
    """As quantisers of weights write it: the elements are the zero point."""
    weights = np.array([[3, 3, 5, 9], [1, 2, 3, 3], [7, 8, 9, 1]], U8)
    constants: Constants = {
        "w": weights, "s": np.array([[0, 0.5], [1, 0], [2, 3]], F32), "z": np.full((3, 2), 3, U8),
    }  # fmt: skip
    nodes = [
        node("DequantizeLinear", "w s z", "", "d", axis=1, block_size=2), node("Add", "x d"),
    ]  # fmt: skip
    assert_computed(model(nodes, X, constants), X)
    weights[0, 1] = 4
    with refused("bad-model", "s", where="my DequantizeLinear"):
        ingot.compile(model(nodes, X, constants))


def test_a_subnormal_scale_of_a_bias() -> None:
    """The product of two small scales, as quantisers write it for a channel of zeros."""
    bias = np.array([900_000, -7, 2**30, 3], np.int32)
    constants: Constants = {"b": bias, "s": np.array([1e-39, 0.5, 3e-42, 1], F32),
                            "z": np.zeros(4, np.int32)}  # fmt: skip
    x = X.reshape(-1, 1)[:3]
    nodes = [node("DequantizeLinear", "b s z", "", "d", axis=0), node("Mul", "x d")]
    assert_computed(model(nodes, x, constants), x)
    constants["s"][2] = 0
    with refused("bad-model", "s", where="my DequantizeLinear"):
        ingot.compile(model(nodes, x, constants))


def test_scales_at_run_time_follow_arithmetic() -> None:
    s = helper.make_tensor_value_info("s", P.FLOAT, [])
    proto = model([node("QuantizeLinear", "x s z")], X, {"z": np.array(3, U8)})
    proto.graph.input.append(s)
    exe = ingot.compile(proto)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    for scale in (0.0, 1e-40, np.nan, np.inf, -1.0):
        feeds = {"x": X, "s": np.array(scale, F32)}
        np.testing.assert_array_equal(exe.run(None, feeds)[0], session.run(None, feeds)[0])


# --- zero points --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [F32, I32, np.float64])
def test_the_type_of_a_zero_point_is_that_of_the_result(kind: type) -> None:
    constants: Constants = {"s": F32(1), "z": np.array(3, kind)}
    assert_refused("bad-type", "QuantizeLinear", "x s z", X, constants, "z")


def test_the_zero_point_and_output_dtype() -> None:
    constants: Constants = {"s": F32(1), "z": U8(3)}
    facts = ("u8[]", "i8")
    assert_refused("bad-type", "QuantizeLinear", "x s z", X, constants, *facts, output_dtype=P.INT8)


@pytest.mark.parametrize("op", ["QLinearMatMul", "QLinearConv"])
def test_zero_points_are_of_the_type_of_their_tensors(op: str) -> None:
    for operand, value in (("xz", I8(0)), ("wz", U8(0)), ("yz", I32(0))):
        assert_refused("bad-type", *qlinear(op, **{operand: value}), operand)


@pytest.mark.parametrize("op", ["MatMulInteger", "ConvInteger"])
def test_zero_points_of_integer_products(op: str) -> None:
    _, _, x, constants = qlinear(op.replace("Integer", "").join(("QLinear", "")))
    for z, names in ((I8(1), "x w z"), (U8(1), "x w _ z")):
        assert_refused("bad-type", op, names, x, {"w": constants["w"], "z": z}, "z")
    sizes = ((7, "x w z"), (3, "x w _ z"))
    for (count, names), kind in zip(sizes, (U8, I8)):
        given: Constants = {"w": constants["w"], "z": np.zeros(count, kind)}
        assert_refused("bad-model", op, names, x, given, "z", count)
    wide: Constants = {"w": np.asarray(constants["w"]).astype(F32)}
    with refused("bad-type", where=f"my {op}", hint=False):
        ingot.compile(model([node(op, "x w")], x, wide))


@pytest.mark.parametrize(("value", "kind"), [(300, P.UINT8), (-200, P.INT8), (1 << 20, P.INT16)])
def test_a_zero_point_beyond_its_type(value: int, kind: int) -> None:
    """A file may hold it, since small integers are stored as wide ones."""
    z = onnx.TensorProto(name="z", data_type=kind, dims=[])
    z.int32_data.append(value)
    x = Q.astype(helper.tensor_dtype_to_np_dtype(kind))
    proto = model([node("DequantizeLinear", "x s z")], x, {"s": F32(1), "z": z})
    with refused("bad-model", value, where=("z", "my DequantizeLinear")):
        ingot.compile(proto)


# --- shapes -------------------------------------------------------------------------------------

SHAPES = [  # shape of the scale, attributes, facts
    ((3,), {"axis": 1}, ("f32[3]", 1, "[4]")),
    ((4,), {"axis": 0}, ("f32[4]", 0, "[3]")),
    ((4,), {"axis": 2}, (2, "f32[4]")),
    ((4,), {"axis": -3}, (-3, "f32[4]")),
    ((0,), {"axis": 1}, ("f32[0]", "[4]")),
    ((3, 4), {"axis": 1}, ("f32[3, 4]", "[4]")),
    ((3, 3), {"axis": 1, "block_size": 2}, ("f32[3, 3]", "[3, 2]", 2)),
    ((2, 2), {"axis": 1, "block_size": 2}, ("f32[2, 2]", "[3, 2]")),
    ((2,), {"axis": 1, "block_size": 2}, ("f32[2]", "[3, 2]")),
    ((3, 2), {"axis": 1, "block_size": -1}, (-1,)),
    ((3, 3), {"axis": 1, "block_size": 3}, ("f32[3, 3]", "[3, 2]", 3)),
]


@pytest.mark.parametrize(("shape", "attrs", "facts"), SHAPES)
@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
def test_shapes_of_scales(op: str, shape: tuple, attrs: dict, facts: tuple) -> None:
    x = X if op == "QuantizeLinear" else Q.astype(I8)
    assert_refused("bad-type", op, "x s", x, {"s": np.ones(shape, F32)}, *facts, **attrs)


@pytest.mark.parametrize("shape", [(3,), (), (4, 1)])
def test_each_scale_has_a_zero_point(shape: tuple) -> None:
    constants: Constants = {"s": np.ones(4, F32), "z": np.zeros(shape, U8)}
    assert_refused("bad-type", "QuantizeLinear", "x s z", X, constants, "f32[4]", axis=1)


def test_scales_of_products_fit_their_tensors() -> None:
    for op, changes in (
        ("QLinearMatMul", {"ws": np.ones(4), "wz": np.zeros(4, I8)}),
        ("QLinearConv", {"ws": np.ones(5), "wz": np.zeros(5, I8)}),
        ("QLinearConv", {"xs": np.ones(4), "xz": np.zeros(4, U8)}),
        ("QLinearMatMul", {"ys": np.ones(5), "yz": np.zeros(5, U8)}),
    ):
        assert_refused("bad-model", *qlinear(op, **changes), next(iter(changes)))


# --- sub-byte tensors, biases -------------------------------------------------------------------


@pytest.mark.parametrize("kind", [P.INT4, P.UINT4])
@pytest.mark.parametrize("count", [0, 4, 6, 9])
def test_an_odd_number_of_nibbles(kind: int, count: int) -> None:
    """3 × 3 of them are five bytes."""
    w = onnx.TensorProto(name="w", data_type=kind, dims=[3, 3], raw_data=bytes(count))
    proto = model(
        [node("DequantizeLinear", "w s", "", "d"), node("MatMul", "x d")],
        np.ones((2, 3), F32), {"w": w, "s": F32(0.5)},
    )  # fmt: skip
    with refused("bad-model", 5, count, where=("w", "my DequantizeLinear")):
        ingot.compile(proto)


def test_odd_nibbles_are_read() -> None:
    w = helper.make_tensor("w", P.INT4, [3, 3], bytes([0x21, 0x43, 0x65, 0x87, 0x09]), raw=True)
    x = np.ones((2, 3), F32)
    nodes = [node("DequantizeLinear", "w s", "", "d"), node("MatMul", "x d")]
    assert_computed(model(nodes, x, {"w": w, "s": F32(0.5)}), x)


@pytest.mark.parametrize("factor", [1, 3.7, 1e-9, 1e3])
@pytest.mark.parametrize("zero", [0, 5])
def test_a_bias_of_another_scale(factor: float, zero: int) -> None:
    """Quantisers give it the product of the scales of input and weights; a file may say another."""
    w = np.arange(-12, 12).reshape(6, 4, 1, 1).astype(I8)
    nodes = [
        node("DequantizeLinear", "q s z", "dx", "dx"), node("QuantizeLinear", "x s z", "q", "q"),
        node("DequantizeLinear", "w ws", "dw", "dw", axis=0),
        node("DequantizeLinear", "b bs bz", "db", "db"), node("Conv", "dx dw db", "c", "c"),
        node("QuantizeLinear", "c ys yz", "qy"),
    ]  # fmt: skip
    constants: Constants = {
        "s": F32(0.0213), "z": U8(130), "w": w, "ws": np.full(6, 0.0117, F32),
        "b": (np.arange(6) * 900 - 2300).astype(I32),
        "bs": np.array(F32(0.0213) * F32(0.0117) * factor, F32),
        "bz": np.array(zero, I32), "ys": F32(0.0471), "yz": U8(101),
    }  # fmt: skip
    x = np.random.default_rng(3).standard_normal((1, 4, 5, 5)).astype(F32)
    assert_computed(model(nodes, x, constants), x)


# --- MatMulNBits --------------------------------------------------------------------------------

PACKED = np.arange(128).reshape(8, 2, 8).astype(U8)
NBITS = [  # changed attributes, weights, scales, zero points; facts
    ({"bits": 3}, {}, ("bits", 3)),
    ({"block_size": 12}, {}, ("u8[8, 3, 6]", 144, 128)),
    ({"block_size": 0}, {}, ("block_size", 0)),
    ({"block_size": -16}, {}, ("block_size", -16)),
    ({"block_size": 3}, {}, ("block_size", 3)),
    ({"block_size": 1 << 40}, {}, ("u8[8, 2, 8]", 128)),
    ({"K": 48}, {}, ("K", "u8[8, 3, 8]")),
    ({"K": 0}, {}, ("K", 0)),
    ({"K": -32}, {}, ("K", -32)),
    ({"K": 1 << 40}, {}, ("K", 128)),
    ({"K": 31}, {}, ("K", 31, 32)),
    ({"K": None}, {}, ("K",)),
    ({"N": 9}, {}, ("u8[9, 2, 8]", 144, 128)),
    ({}, {"b": PACKED[:, :, :7]}, ("u8[8, 2, 7]", "u8[8, 2, 8]")),
    ({}, {"b": PACKED.view(I8)}, ("i8[8, 2, 8]",)),
    ({"bits": 8}, {}, ("u8[8, 2, 16]", 256, 128)),
    ({}, {"s": np.ones(15, F32)}, ("f32[15]", 16)),
    ({}, {"s": np.full(16, np.nan, F32)}, ("s", "nan")),
    ({}, {"z": np.zeros(9, U8)}, ("u8[9]", 8)),
    ({}, {"z": np.zeros(16, I32)}, ("i32[16]",)),
    ({}, {"z": np.zeros(15, F32)}, ("f32[15]", 16)),
]


@pytest.mark.parametrize(("attrs", "changes", "facts"), NBITS)
def test_packed_weights(attrs: dict, changes: dict, facts: tuple) -> None:
    given = {"K": 32, "N": 8, "bits": 4, "block_size": 16} | attrs
    given = {name: value for name, value in given.items() if value is not None}
    constants: Constants = {"b": PACKED, "s": np.ones(16, F32)} | changes
    names = "x b s" + (" z" if "z" in constants else "")
    x = np.ones((2, 32), F32)
    assert_refused("bad-model", "MatMulNBits", names, x, constants, *facts, **given)

"""ONNX converters against ONNX Runtime: a table of small nodes, imported and interpreted.

Each case is one ONNX node. Operands listed in `const` are initializers (sizes and axes mostly are);
the others are inputs. Where `dynamic`, every input dimension is a symbol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from ingot import dtypes
from ingot.frontends.onnx.walker import import_model
from ingot.graph import interp
from ingot.graph.store import ConstantStore
from ingot.ops.common import bools, edge_floats, floats, integers

onnxruntime.set_default_logger_severity(4)


@dataclass
class Case:
    op: str
    inputs: Sequence[np.ndarray | None]
    attrs: dict[str, Any] = field(default_factory=dict)
    const: tuple[int, ...] = ()
    opset: int = 21
    outputs: int = 1
    dynamic: bool = False
    domain: str = ""

    def __str__(self) -> str:
        shapes = ",".join("-" if x is None else "x".join(map(str, x.shape)) for x in self.inputs)
        return f"{self.op}-{self.opset}-{shapes}-{'dyn' if self.dynamic else 'fix'}"


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def scalar(value: float, dtype: Any = np.float32) -> np.ndarray:
    return np.array(value, dtype)


X, Y = floats(2, 3, 4), floats(3, 1, key="y")
EDGE, POSITIVE = edge_floats(), np.abs(floats(3, 4)) + np.float32(1.1)
UNARY = [
    "Neg", "Abs", "Sign", "Reciprocal", "Exp", "Log", "Sqrt", "Floor", "Ceil", "Round", "Erf",
    "Sigmoid", "Tanh", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh",
    "Acosh", "Atanh", "Relu", "IsNaN", "Identity", "Softplus", "Softsign", "HardSwish", "Mish",
]  # fmt: skip
BINARY = ["Add", "Sub", "Mul", "Div", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"]
A_INTS, B_INTS = integers(4, 5, key="a"), integers(5, key="b") * 2 + 1


def elementwise_cases() -> list[Case]:
    finite = EDGE[3:]
    cases = [Case(op, [x]) for op in UNARY for x in (finite, X)]
    cases += [Case(op, [EDGE]) for op in ("Relu", "IsNaN", "Sign", "Floor", "Round", "Abs", "Exp")]
    cases += [Case(op, pair) for op in BINARY for pair in ([X, Y], [A_INTS, B_INTS])]
    cases += [Case(op, [bools(2, 3), bools(3, key=1)]) for op in ("And", "Or", "Xor", "Equal")]
    ints = integers(6, dtype=dtypes.u8)
    cases += [Case(op, [ints, ints[::-1]]) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")]
    for direction in ("LEFT", "RIGHT"):
        cases.append(Case("BitShift", [ints, ints % 8], {"direction": direction}))
    cases += [
        Case("Not", [bools(4)]), Case("BitwiseNot", [ints]),
        Case("Mod", [A_INTS, B_INTS]), Case("Mod", [A_INTS, B_INTS], {"fmod": 1}),
        Case("Mod", [X, Y], {"fmod": 1}),
        Case("Pow", [POSITIVE, floats(3, 4)]), Case("Pow", [X, i64(3)]),
        Case("Pow", [integers(2, 3), i64(3)]), Case("Pow", [integers(3, low=1), POSITIVE[0, :3]]),
        Case("IsInf", [EDGE]), Case("IsInf", [EDGE], {"detect_negative": 0}),
        Case("Where", [bools(3, 1), X, Y]),
        Case("Sum", [X, Y, Y]), Case("Mean", [X, Y, Y]), Case("Max", [X, Y]), Case("Min", [X]),
        Case("Max", [EDGE, -EDGE]), Case("Max", [A_INTS, B_INTS]),
        Case("Clip", [X, scalar(-0.5), scalar(0.5)]), Case("Clip", [X, None, scalar(0)]),
        Case("Clip", [A_INTS, scalar(-2, np.int64)]),
        Case("Clip", [X], {"min": -0.25, "max": 0.5}, opset=6), Case("Clip", [X], opset=6),
        Case("Dropout", [X], outputs=2), Case("Dropout", [X], {"ratio": 0.5}, opset=7),
    ]  # fmt: skip
    for to in (np.float32, np.float64, np.float16, np.int8, np.int32, np.int64, np.bool_):
        code = helper.np_dtype_to_tensor_dtype(np.dtype(to))
        cases += [Case("Cast", [x], {"to": code}) for x in (X * 3, A_INTS, bools(3))]
    cases.append(Case("CastLike", [X, A_INTS]))
    return cases


def activation_cases() -> list[Case]:
    microsoft = {"domain": "com.microsoft"}
    return [
        Case("LeakyRelu", [X], {"alpha": 0.3}), Case("Elu", [X], {"alpha": 0.5}),
        Case("Selu", [X]), Case("Celu", [X], {"alpha": 2.0}), Case("HardSigmoid", [X]),
        Case("HardSigmoid", [X], {"alpha": 0.5, "beta": 0.1}),
        Case("ThresholdedRelu", [X], {"alpha": 0.2}), Case("Gelu", [X]),
        Case("Gelu", [X], {"approximate": "tanh"}), Case("PRelu", [X, Y]),
        Case("PRelu", [X, floats(3, key="slope")[:, None]], opset=7),
        Case("Shrink", [X], {"lambd": 0.3, "bias": 0.1}),
        Case("Gelu", [X], **microsoft), Case("FastGelu", [X, floats(4)], **microsoft),
        Case("BiasGelu", [X, floats(4)], **microsoft), Case("QuickGelu", [X], **microsoft),
    ]  # fmt: skip


def movement_cases() -> list[Case]:
    both = []
    for dynamic in (False, True):
        more = {"dynamic": dynamic}
        both += [
            Case("Reshape", [X, i64(0, -1)], const=(1,), **more),
            Case("Reshape", [X, i64(-1, 4)], const=(1,), **more),
            Case("Flatten", [X], {"axis": 2}, **more), Case("Flatten", [X], {"axis": -1}, **more),
            Case("Transpose", [X], **more), Case("Transpose", [X], {"perm": [1, 0, 2]}, **more),
            Case("Unsqueeze", [X, i64(0, -1)], const=(1,), **more),
            Case("Slice", [X, i64(0, -2), i64(9, 2**63 - 1), i64(0, -1)], const=(1, 2, 3), **more),
            Case("Slice", [X, i64(-1, 3), i64(-9, 0), i64(1, 2), i64(-1, -2)], const=(1, 2, 3, 4),
                 **more),
            Case("Slice", [X, i64(1), i64(-1)], const=(1, 2), **more),
            Case("Slice", [X, i64(5), i64(7), i64(1)], const=(1, 2, 3), **more),
            Case("Slice", [X, i64(-9, -7), i64(-99, 1), i64(0, 2), i64(-2, -1)], const=(1, 2, 3, 4),
                 **more),
            Case("Slice", [X, i64(3, 1), i64(2, 1), i64(1, 2), i64(2, -1)], const=(1, 2, 3, 4),
                 **more),
            Case("Pad", [X, i64(0, 1, 2, 0, 0, 1), scalar(3)], const=(1,), **more),
            Case("Pad", [X, i64(0, 1, 2, 1, 0, 1)], {"mode": "reflect"}, (1,), **more),
            Case("Pad", [X, i64(2, 1), None, i64(-1)], {"mode": "edge"}, (1, 3), **more),
            Case("Pad", [X, i64(3, -1), None, i64(1)], {"mode": "wrap"}, (1, 3), **more),
            Case("Expand", [floats(3, 4), i64(2, 1, 1)], const=(1,), **more),
            Case("Tile", [X, i64(1, 2, 3)], const=(1,), **more),
            Case("Concat", [X, X, X], {"axis": -2}, **more), Case("Trilu", [X], **more),
            Case("Trilu", [X, scalar(-1, np.int64)], {"upper": 0}, (1,), **more),
            Case("Split", [floats(2, 5)], {"axis": 1, "num_outputs": 3}, outputs=3, **more),
            Case("Split", [floats(2, 6)], {"axis": 1, "num_outputs": 2}, outputs=2, **more),
        ]  # fmt: skip
    depth = floats(2, 8, 3, 2)
    return [
        *both,
        Case("Reshape", [floats(0, 3), i64(0, 5)], {"allowzero": 1}, const=(0, 1)),
        Case("Squeeze", [floats(1, 3, 1)]), Case("Squeeze", [floats(1, 3, 1), i64(-1)], const=(1,)),
        Case("Squeeze", [floats(1, 3, 1)], {"axes": [0]}, opset=11),
        Case("Unsqueeze", [X], {"axes": [0, 4]}, opset=11),
        Case("Slice", [X], {"starts": [1, -2], "ends": [5, 4], "axes": [0, 2]}, opset=9),
        Case("Split", [X, i64(1, 3)], {"axis": -1}, const=(1,), outputs=2),
        Case("Split", [X], {"axis": 2, "split": [1, 3]}, opset=11, outputs=2),
        Case("Split", [X], {"axis": 2}, opset=13, outputs=2),
        Case("Pad", [X], {"pads": [0, 1, 0, 1, 0, 2], "value": 1.5}, opset=10),
        Case("DepthToSpace", [depth], {"blocksize": 2}),
        Case("DepthToSpace", [depth], {"blocksize": 2, "mode": "CRD"}),
        Case("Reshape", [X, i64(4, 6)]), Case("Reshape", [X, i64(0, 12)]),
        Case("CenterCropPad", [floats(5, 2, 4), i64(3, 5)], {"axes": [0, 1]}, const=(1,)),
        Case("SpaceToDepth", [floats(1, 2, 4, 6)], {"blocksize": 2}),
    ]  # fmt: skip


def gather_cases() -> list[Case]:
    at, updates = np.array([[0, -1, 2], [1, 1, -3]]), floats(2, 3, key="u")
    cases = []
    for dynamic in (False, True):
        cases += [
            Case("Gather", [X, at], {"axis": 1}, dynamic=dynamic),
            Case("Gather", [X, scalar(-1, np.int64)], dynamic=dynamic),
            Case("NonZero", [np.round(X)], dynamic=dynamic),
            Case("Compress", [X, bools(3)], {"axis": 1}, dynamic=dynamic),
            Case("Shape", [X], {"start": -2}, dynamic=dynamic), Case("Size", [X], dynamic=dynamic),
            Case("EyeLike", [floats(3, 4)], {"k": 1}, dynamic=dynamic),
        ]  # fmt: skip
    for reduction in ("none", "add", "mul", "min", "max"):
        attrs = {"reduction": reduction}
        cases.append(Case("ScatterElements", [floats(3, 3), at, updates], {"axis": 0, **attrs}))
        cases.append(Case("ScatterND", [floats(3, 3), i64(0, 2, 0)[:, None], floats(3, 3)], attrs))
    off_on = np.array([0.5, 2], np.float32)
    return [
        *cases,
        Case("GatherElements", [floats(3, 4), at], {"axis": 0}),
        Case("GatherND", [X, np.array([[0, 1], [1, -1]])]),
        Case("GatherND", [X, i64(1, 2)[:, None]], {"batch_dims": 1}),
        Case("OneHot", [at, scalar(4, np.int64), off_on], const=(1,)),
        Case("OneHot", [at, scalar(4, np.int64), off_on], {"axis": 0}, const=(1,)),
        Case("ReverseSequence", [floats(4, 3), i64(1, 4, 2)]),
        Case("Compress", [X, bools(20)]),
        Case("ConstantOfShape", [i64(2, 3)], const=(0,)),
        Case("ConstantOfShape", [i64(2)], {"value": _tensor(np.array([7]))}, const=(0,)),
        Case("Constant", [], {"value_floats": [1.5, 2.0]}),
        Case("Constant", [], {"value_int": 3}),
        Case("Range", [scalar(1, np.int64), scalar(9, np.int64), scalar(3, np.int64)]),
        Case("Range", [scalar(5), scalar(0), scalar(-0.75)]),
        Case("Range", [scalar(v, np.int32) for v in (3, 9, 2)], const=(0, 1, 2)),
    ]


def _tensor(array: np.ndarray) -> onnx.TensorProto:
    return numpy_helper.from_array(array)


CASES = [*elementwise_cases(), *activation_cases(), *movement_cases(), *gather_cases()]


def build(case: Case) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    names = ["" if x is None else f"x{i}" for i, x in enumerate(case.inputs)]
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(case.op, names, outputs, name="it", domain=case.domain, **case.attrs)
    graph_inputs, constants, feeds = [], [], {}
    for index, (name, x) in enumerate(zip(names, case.inputs)):
        if x is None:
            continue
        x = np.ascontiguousarray(x) if x.ndim else x
        if index in case.const:
            constants.append(numpy_helper.from_array(x, name))
            continue
        dims = [f"s{d}_{k}" for k, d in enumerate(x.shape)] if case.dynamic else x.shape
        code = helper.np_dtype_to_tensor_dtype(x.dtype)
        graph_inputs.append(helper.make_tensor_value_info(name, code, dims))
        feeds[name] = x
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph([node], "one", graph_inputs, results, constants)
    opsets = [helper.make_opsetid("", case.opset)]
    opsets += [helper.make_opsetid(case.domain, 1)] if case.domain else []
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), feeds


TWO, THREE, LAST = floats(2), floats(3), [(0, 0), (0, 0), (0, 1)]
NUMPY = [  # ONNX Runtime starts at opset 7 and does not have the newest
    (Case("Swish", [X], opset=24), X / (1 + np.exp(-X))),
    (Case("Swish", [X], {"alpha": 0.5}, opset=24), X / (1 + np.exp(-X / 2))),
    (Case("SpaceToDepth", [floats(1, 1, 2, 4)], {"blocksize": 2}, opset=13),
     floats(1, 1, 2, 4).reshape(2, 2, 2).transpose(0, 2, 1).reshape(1, 4, 1, 2)),
    (Case("Add", [X, THREE], {"broadcast": 1, "axis": 1}, opset=6), X + THREE[:, None]),
    (Case("Mul", [X, floats(3, 4)], {"broadcast": 1}, opset=6), X * floats(3, 4)),
    (Case("Sub", [X, TWO], {"broadcast": 1, "axis": 0}, opset=6), X - TWO[:, None, None]),
    (Case("PRelu", [X, THREE], opset=6), np.where(X < 0, X * THREE[:, None], X)),
    (Case("Reshape", [X], {"shape": [0, -1]}, opset=4), X.reshape(2, 12)),
    (Case("Cast", [X], {"to": "INT32"}, opset=5), X.astype(np.int32)),
    (Case("Concat", [X, X], opset=3), np.concatenate([X, X], 1)),
    (Case("Pad", [X], {"paddings": [0, 0, 0, 0, 0, 1]}, opset=1), np.pad(X, LAST)),
    (Case("Tile", [X, scalar(2, np.int64), scalar(1, np.int64)], const=(1, 2), opset=5),
     np.tile(X, (1, 2, 1))),
]  # fmt: skip


@pytest.mark.parametrize(("case", "expected"), NUMPY, ids=str)
def test_against_numpy(case: Case, expected: np.ndarray) -> None:
    model, feeds = build(case)
    store = ConstantStore()
    (got,) = interp.run(import_model(model, store), store, list(feeds.values()))
    np.testing.assert_allclose(got, expected, 1e-6)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_onnxruntime(case: Case) -> None:
    model, feeds = build(case)
    store = ConstantStore()
    graph = import_model(model, store)
    got = interp.run(graph, store, [feeds[v.name] for v in graph.inputs])
    want = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    for have, expected in zip(got, want, strict=True):
        assert have.dtype == expected.dtype
        assert have.shape == expected.shape
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(have, expected, 1e-4, 1e-5)
        else:
            np.testing.assert_array_equal(have, expected)

"""Valid small models of many operators, as bytes by name: what mutate.py breaks.

In: the tests' own models and tables of single nodes, ONNX's suite (suite_seeds.py), other domains
(domain_seeds.py). Out: `corpus()`; a name begins with its group, "own/", "suite/" or "domains/".
The order is fixed, so that a seed means the same mutant everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto as P
from onnx import helper

from ingot import dtypes
from ingot.ops.common import floats, integers
from tests.fuzz.bad_models.domain_seeds import domain_models
from tests.fuzz.bad_models.suite_seeds import suite_models
from tests.models.build import HARD
from tests.models.parts import graph, info, model, node, weight
from tests.ops.peers import node_model
from tests.ops.test_against_onnxruntime import CASES, NUMPY, build

DIGITS = Path(__file__).parents[3] / "examples/digits/digits.onnx"
SIDE_FILE = "side.bin"  # the outside data of the models that have some
SIDE_BYTES = np.arange(64, dtype=np.float32).tobytes()
PER_OPERATOR = 3  # of the rows of one operator in the tables of tests/ops

IMAGE, SMALL, SEQUENCE = floats(2, 4, 8, 8), floats(1, 2, 5, 5), floats(5, 2, 4)
U8, I8 = integers(3, 4, dtype=dtypes.u8), integers(4, 5, dtype=dtypes.i8)
SCALE, ZERO = np.float32(0.05).reshape(()), np.uint8(3).reshape(())
ZERO_I8 = np.int8(0).reshape(())

Row = tuple[str, Sequence[np.ndarray | None], dict[str, Any], Sequence[int]]
ROWS: list[Row] = [  # operator, operands, attributes, which operands are constants
    ("Conv", [IMAGE, floats(3, 4, 3, 3)], {"pads": [1, 1, 1, 1]}, (1,)),
    ("Conv", [IMAGE, floats(8, 2, 3, 3), floats(8)], {"group": 2, "strides": [2, 2]}, (1, 2)),
    ("Conv", [floats(1, 2, 9), floats(2, 2, 3)], {"dilations": [2]}, ()),
    ("ConvTranspose", [SMALL, floats(2, 3, 3, 3)], {"strides": [2, 2]}, (1,)),
    ("ConvInteger", [integers(1, 2, 5, 5, dtype=dtypes.u8),
                     integers(3, 2, 3, 3, dtype=dtypes.u8), ZERO], {}, (1, 2)),
    ("MaxPool", [IMAGE], {"kernel_shape": [3, 3], "strides": [2, 2]}, ()),
    ("AveragePool", [IMAGE], {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1]}, ()),
    ("LpPool", [IMAGE], {"kernel_shape": [2, 2], "p": 2}, ()),
    ("GlobalAveragePool", [IMAGE], {}, ()), ("GlobalMaxPool", [IMAGE], {}, ()),
    ("MatMul", [floats(2, 3, 4), floats(4, 5)], {}, (1,)),
    ("Gemm", [floats(3, 4), floats(5, 4), floats(5)], {"transB": 1, "alpha": 0.5}, (1, 2)),
    ("Einsum", [floats(2, 3, 4), floats(2, 4, 5)], {"equation": "bij,bjk->bik"}, ()),
    ("MatMulInteger", [U8, I8, ZERO, ZERO_I8], {}, (1, 2, 3)),
    ("QLinearMatMul", [U8, SCALE, ZERO, I8, SCALE, ZERO_I8, SCALE, ZERO], {}, range(1, 8)),
    ("QuantizeLinear", [floats(3, 4), SCALE, ZERO], {}, (1, 2)),
    ("DequantizeLinear", [I8, SCALE, ZERO_I8], {}, (1, 2)),
    ("DynamicQuantizeLinear", [floats(3, 4)], {}, ()),
    ("BatchNormalization", [IMAGE, floats(4), floats(4), floats(4), abs(floats(4))], {},
     (1, 2, 3, 4)),
    ("LayerNormalization", [floats(2, 3, 8), floats(8), floats(8)], {"axis": -1}, (1, 2)),
    ("InstanceNormalization", [IMAGE, floats(4), floats(4)], {}, (1, 2)),
    ("GroupNormalization", [IMAGE, floats(4), floats(4)], {"num_groups": 2}, (1, 2)),
    ("LRN", [IMAGE], {"size": 3}, ()), ("LpNormalization", [floats(3, 4)], {"axis": 1}, ()),
    ("MeanVarianceNormalization", [IMAGE], {}, ()),
    ("Softmax", [floats(2, 5)], {"axis": -1}, ()), ("LogSoftmax", [floats(2, 5)], {"axis": 0}, ()),
    ("Hardmax", [floats(2, 5)], {"axis": 1}, ()),
    ("ReduceSum", [floats(2, 3, 4), integers(1, low=1, high=1)], {"keepdims": 0}, (1,)),
    ("ReduceMean", [floats(2, 3, 4)], {}, ()), ("ReduceMax", [floats(2, 3, 4)], {}, ()),
    ("ReduceProd", [floats(2, 3)], {}, ()), ("ReduceL2", [floats(2, 3)], {}, ()),
    ("ReduceLogSumExp", [floats(2, 3)], {}, ()), ("ReduceSumSquare", [floats(2, 3)], {}, ()),
    ("ArgMax", [floats(2, 5)], {"axis": 1}, ()), ("ArgMin", [floats(2, 5)], {"axis": 0}, ()),
    ("LSTM", [SEQUENCE, floats(1, 12, 4), floats(1, 12, 3)], {"hidden_size": 3}, (1, 2)),
    ("GRU", [SEQUENCE, floats(1, 9, 4), floats(1, 9, 3)], {"hidden_size": 3}, (1, 2)),
    ("RNN", [SEQUENCE, floats(1, 3, 4), floats(1, 3, 3)], {"hidden_size": 3}, (1, 2)),
]  # fmt: skip


def corpus() -> dict[str, bytes]:
    """Every model, by a name that says what it is."""
    models = {name: make()[0] for name, make in HARD.items()}
    models["digits"] = onnx.load(DIGITS)
    models |= {"outside": outside(), "shapes": shape_arithmetic(), "calls": calls()}
    models |= {"scan": scan(), "nested": nested()}
    for index, (op, arrays, attrs, constants) in enumerate(ROWS):
        opset = 21 if op == "GroupNormalization" else 17
        models[f"{op}-{index}"] = node_model(op, arrays, attrs, opset, ["y"], constants, (0,))
    counts: dict[str, int] = {}
    for case in [*CASES, *(case for case, _ in NUMPY)]:
        counts[case.op] = counts.get(case.op, 0) + 1
        if counts[case.op] <= PER_OPERATOR:
            models[f"{case.op}.{counts[case.op]}"] = build(case)[0]
    groups = {"own": models, "suite": suite_models(), "domains": domain_models()}
    return {
        f"{group}/{name}": proto.SerializeToString(deterministic=True)
        for group, protos in groups.items()
        for name, proto in protos.items()
    }


def outside() -> onnx.ModelProto:
    """Weights in another file."""
    proto = model(
        "outside",
        [node("Gemm", "x w b", "y")],
        [info("x", ["n", 4])],
        [onnx.ValueInfoProto(name="y")],
    )
    for name, dims, offset in (("w", [4, 8], 0), ("b", [8], 128)):
        tensor = P(name=name, data_type=P.FLOAT, dims=dims, data_location=P.EXTERNAL)
        length = 4 * int(np.prod(dims))
        for key, value in {"location": SIDE_FILE, "offset": offset, "length": length}.items():
            tensor.external_data.add(key=key, value=str(value))
        proto.graph.initializer.append(tensor)
    return proto


def shape_arithmetic() -> onnx.ModelProto:
    """Sizes computed in the graph, as exporters write them."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "batch", axis=0),
        node("Unsqueeze", "batch axis", "batch_row"),
        node("Mul", "batch_row two", "twice"),
        node("Concat", "twice minus", "target", axis=0),
        node("Reshape", "x target", "flat"),
        node("ConstantOfShape", "shape", "zeros"),
        node("Range", "start stop step", "steps"),
        node("Expand", "half shape", "halves"),
        node("Tile", "x repeats", "tiled"),
        node("Pad", "tiled pads", "padded"),
        node("Slice", "padded starts ends axes", "cut"),
        node("Add", "halves zeros", "sum"),
    ]
    numbers = {
        "zero": np.int64(0), "axis": [0], "two": [2], "minus": [-1], "start": np.int64(0),
        "stop": np.int64(5), "step": np.int64(1), "repeats": [1, 2, 1], "pads": [0, 1, 0, 0, 0, 2],
        "starts": [1], "ends": [4], "axes": [1],
    }  # fmt: skip
    constants = {name: np.array(value, np.int64) for name, value in numbers.items()}
    constants["half"] = np.full((1,), 0.5, np.float32)
    outputs = [onnx.ValueInfoProto(name=name) for name in ("flat", "sum", "steps", "cut")]
    return model("shapes", nodes, [info("x", ["batch", 4, 3])], outputs, constants)


def calls() -> onnx.ModelProto:
    """Functions of the model's own, one in another, with an attribute handed on."""
    proto = model(
        "calls", [node("Outer", "x", "y", domain="local", slope=0.25)],
        [info("x", [2, 3])], [info("y", [2, 3])],
    )  # fmt: skip
    leaky = node("LeakyRelu", "p", "q")
    leaky.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    inner = node("Inner", "a", "b", domain="local")
    inner.attribute.add(name="slope", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    made = [
        helper.make_function("local", "Inner", ["p"], ["q"], [leaky], versions, ["slope"]),
        helper.make_function(
            "local", "Outer", ["a"], ["c"], [inner, node("Tanh", "b", "c")], versions, ["slope"]
        ),
    ]
    proto.functions.extend(made)
    proto.opset_import.append(helper.make_opsetid("local", 1))
    return proto


def scan() -> onnx.ModelProto:
    body = graph(
        "body",
        [node("Add", "total row", "next"), node("Identity", "next", "kept")],
        [info("total", [3]), info("row", [3])],
        [info("next", [3]), info("kept", [3])],
    )
    nodes = [node("Scan", "start x", "last rows", body=body, num_scan_inputs=1)]
    outputs = [info("last", [3]), info("rows", [4, 3])]
    return model("scan", nodes, [info("start", [3]), info("x", [4, 3])], outputs)


def nested() -> onnx.ModelProto:
    """A choice in a loop in a choice, each reading from around it."""
    types = [info("turn", [], P.INT64), info("go", [], P.BOOL), info("state", [2, 4])]
    then = graph("then", [node("MatMul", "state w", "a")], [], [info("a", [2, 4])])
    other = graph("other", [node("Sub", "state x", "b")], [], [info("b", [2, 4])])
    body_nodes = [
        node("ReduceMax", "state", "peak", keepdims=0),
        node("Greater", "peak zero", "is_high"),
        node("If", "is_high", "next", then_branch=then, else_branch=other),
        node("Identity", "go", "go_on"),
    ]
    results = [info("go_on", [], P.BOOL), info("next", [2, 4])]
    body = graph("body", body_nodes, types, results)
    loop = graph(
        "loop",
        [node("Loop", "three yes x", "last", body=body)],
        [],
        [onnx.ValueInfoProto(name="last")],
    )
    keep = graph("keep", [node("Identity", "x", "same")], [], [info("same", [2, 4])])
    nodes = [node("If", "flag", "y", then_branch=loop, else_branch=keep)]
    constants = {
        "w": weight(1, 4, 4), "zero": np.zeros((), np.float32),
        "three": np.array(3, np.int64), "yes": np.array(True),
    }  # fmt: skip
    inputs = [info("x", [2, 4]), info("flag", [], P.BOOL)]
    return model("nested", nodes, inputs, [info("y", [2, 4])], constants)

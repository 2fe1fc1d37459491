"""Small models of strings, and their comparison with ONNX Runtime and ONNX's own evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto as P
from onnx import helper
from onnx.reference import ReferenceEvaluator

import ingot

ML = "ai.onnx.ml"


def info(name: str, code: int, shape: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, code, shape)


def node(op: str, inputs: str, outputs: str, domain: str = "", **attrs: Any) -> onnx.NodeProto:
    name = f"{op} of {outputs}"
    return helper.make_node(op, inputs.split(","), outputs.split(","), name, domain=domain, **attrs)


def model(nodes, inputs, outputs, constants=(), opset: int = 20, ml: int = 3) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "strings", inputs, outputs, constants)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(ML, ml)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def one(op: str, x: np.ndarray, gives: int, domain: str = "", ml: int = 3, **attrs: Any):
    """A model of one operator with one operand, whose first size is dynamic."""
    is_text = x.dtype == object
    code = P.STRING if is_text else helper.np_dtype_to_tensor_dtype(x.dtype)
    shape = ["n", *x.shape[1:]] if x.shape else []
    return model(
        [node(op, "x", "y", domain, **attrs)],
        [info("x", code, shape)],
        [info("y", gives, None)],
        ml=ml,
    )


def texts(*values: str) -> np.ndarray:
    return np.array(values, object)


def by_onnxruntime(made: onnx.ModelProto, feeds: dict) -> list:
    return onnxruntime.InferenceSession(made.SerializeToString()).run(None, feeds)


def by_onnx(made: onnx.ModelProto, feeds: dict) -> list:
    return ReferenceEvaluator(made).run(None, feeds)


def check(made: onnx.ModelProto, feeds: dict, expect=by_onnxruntime, exe: Any = None) -> None:
    """The compiled model gives exactly what the other gives."""
    got, want = (exe or ingot.compile(made)).run(None, feeds), expect(made, feeds)
    for a, b in zip(got, want, strict=True):
        if isinstance(b, list):
            assert a == b
            continue
        assert a.shape == b.shape and (a.dtype == b.dtype or b.dtype.kind == "U")
        np.testing.assert_array_equal(a, b)

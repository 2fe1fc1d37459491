"""Operators whose schema builds their function body from the node and its types."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

import ingot
from ingot.frontends.onnx import functions, registry
from tests.refusal import refused

RNG = np.random.default_rng(0)
SCORES = RNG.standard_normal((4, 5)).astype(np.float32)
LABELS = np.array([1, 0, 4, 2])
OPSETS = [helper.make_opsetid("", 23)]


def model(nodes, inputs, outputs, functions=(), opsets=OPSETS) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "bodies", inputs, outputs)
    made = helper.make_model(graph, opset_imports=opsets, ir_version=11)
    made.functions.extend(functions)
    return made


def losses(reduction: str) -> np.ndarray:
    log = SCORES - SCORES.max(1, keepdims=True)
    log -= np.log(np.exp(log).sum(1, keepdims=True))
    each = -log[np.arange(4), LABELS]
    return each if reduction == "none" else each.sum()


def loss_inputs():
    return [
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 5]),
        helper.make_tensor_value_info("labels", TensorProto.INT64, ["n"]),
    ]


def test_attributes_choose_the_body():
    for reduction in ("none", "sum"):
        node = helper.make_node(
            "SoftmaxCrossEntropyLoss", ["scores", "labels"], ["y"], reduction=reduction
        )
        out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        (y,) = ingot.compile(model([node], loss_inputs(), [out]))(SCORES, LABELS)
        np.testing.assert_allclose(y, losses(reduction), rtol=1e-5)


def test_attributes_of_an_enclosing_function_choose_the_body():
    inner = helper.make_node("SoftmaxCrossEntropyLoss", ["a", "b"], ["c"])
    inner.attribute.add(name="reduction", ref_attr_name="how", type=onnx.AttributeProto.STRING)
    function = helper.make_function("own", "loss", ["a", "b"], ["c"], [inner], OPSETS, ["how"])
    node = helper.make_node("loss", ["scores", "labels"], ["y"], domain="own", how="none")
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    opsets = [*OPSETS, helper.make_opsetid("own", 1)]
    proto = model([node], loss_inputs(), [out], [function], opsets)
    (y,) = ingot.compile(proto)(SCORES, LABELS)
    np.testing.assert_allclose(y, losses("none"), rtol=1e-5)


def test_outputs_that_are_not_wanted_may_be_missing_in_the_body():
    """Attention without past keys has no present ones; the scores are its fourth output."""
    q, k, v = (RNG.standard_normal((1, 2, 3, 4)).astype(np.float32) for _ in range(3))
    node = helper.make_node("Attention", ["q", "k", "v"], ["y", "", "", "scores"])
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 2, 3, 4]) for n in "qkv"]
    outputs = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 2, 3, size])
        for n, size in (("y", 4), ("scores", 3))
    ]
    y, scores = ingot.compile(model([node], inputs, outputs))(q, k, v)
    want = q @ k.transpose(0, 1, 3, 2) / 2
    np.testing.assert_allclose(scores, want, rtol=1e-4, atol=1e-5)
    weights = np.exp(want) / np.exp(want).sum(-1, keepdims=True)
    np.testing.assert_allclose(y, weights @ v, rtol=1e-4, atol=1e-5)


def test_a_missing_operator_inside_a_body_is_named(monkeypatch):
    for op in ("Bernoulli", "RandomUniformLike"):
        monkeypatch.delitem(registry.TABLE, ("", op))
    functions.is_importable.cache_clear()
    node = helper.make_node("Bernoulli", ["x"], ["y"], name="coin")
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])]
    with refused("unsupported-op", "RandomUniformLike", where="coin", hint="RandomUniformLike"):
        ingot.compile(model([node], inputs, outputs))

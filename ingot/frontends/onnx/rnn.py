"""ONNX converters of the rnn family: RNN, GRU, LSTM.

In: ONNX nodes. Out: nodes of ops/rnn.py, with the same operands in the same order. Called by
walker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.registry import Converter, Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value
from ingot.ops.rnn_gates import ACTIVATIONS


def recurrent(op: str, operands: int) -> Converter:
    def convert(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
        required = [ctx.value(node, i) for i in range(3)]
        optional = [ctx.optional(node, i) for i in range(3, operands)]
        hidden = node.attr("hidden_size")
        if hidden is not None and required[2].shape[-1] != hidden:
            raise bad_model(node, f"hidden_size {hidden} does not match {required[2].type}")
        return ctx.g.add_all(op, [*required, *optional], **attributes(node, op))

    return convert


def activation(name: str) -> str:
    """ONNX compares these names without case: "LeakyRelu", "leakyrelu"."""
    return {known.replace("_", ""): known for known in ACTIVATIONS}.get(name.lower(), name)


def attributes(node: OnnxNode, op: str) -> dict[str, Any]:
    attrs: dict[str, Any] = {
        "direction": node.attr("direction", "forward"),
        "layout": node.attr("layout", 0),
        "activations": tuple(map(activation, node.attr("activations") or ())),
        "alphas": tuple(node.attr("activation_alpha") or ()),
        "betas": tuple(node.attr("activation_beta") or ()),
    }
    if node.attr("clip") is not None:
        attrs["clip"] = node.attr("clip")
    if op == "gru":
        attrs["linear_before_reset"] = bool(node.attr("linear_before_reset", 0))
    if op == "lstm":
        attrs["input_forget"] = bool(node.attr("input_forget", 0))
    return attrs


onnx_op("RNN")(recurrent("rnn", 6))
onnx_op("GRU")(recurrent("gru", 6))
onnx_op("LSTM")(recurrent("lstm", 8))

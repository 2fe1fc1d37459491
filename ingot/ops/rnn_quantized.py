"""The LSTM whose activations are quantised when it runs, in operators.

In: an LSTM's operands with 8-bit weights, and the scales and zero points of the weights. Out:
nodes. Called by frontends/onnx/contrib/qmatmul.py. The inputs of all steps are quantised at once, by their
common range; the hidden state is quantised in each step.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from ingot import dtypes
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Value
from ingot.graph.opdef import Attrs
from ingot.ops.rnn import Lstm, Weights
from ingot.ops.rnn_gates import cast, direction_of


@dataclass(frozen=True)
class Point:
    """The scale and zero point of weights: (directions), or (directions, columns)."""

    scale: Value
    zero: Value

    def of(self, g: GraphBuilder, d: int) -> list[Value]:
        return [direction_of(g, v, d) for v in (self.scale, self.zero)]


def quantised_product(g: GraphBuilder, x: Value, w: Value, scale: Value, zero: Value) -> Value:
    """x·((w - zero) · scale), where x is quantised by its range."""
    small, x_scale, x_zero = g.add_all("dynamic_quantize_linear", [x])
    total = g.add("matmul_integer", [small, w, x_zero, zero])
    factor = g.add("mul", [x_scale, scale])
    return g.add("mul", [cast(g, total, dtypes.f32), factor])


class QuantisedLstm(Lstm):
    """An LSTM's decomposition with quantised products. It is no operator of the table."""

    def __init__(self, w: Point, r: Point):
        self.w, self.r, self.direction = w, r, 0

    def run(
        self,
        g: GraphBuilder,
        x: Value,
        params: Sequence[Value | None],
        lens: Value | None,
        starts: list[Value],
        attrs: Attrs,
        d: int,
        backwards: bool,
    ) -> list[Value]:
        one = copy.copy(self)
        one.direction = d
        return Lstm.run(one, g, x, params, lens, starts, attrs, d, backwards)

    def input_product(self, g: GraphBuilder, x: Value, w: Value) -> Value:
        return quantised_product(g, x, w, *self.w.of(g, self.direction))

    def weights(
        self, g: GraphBuilder, r: Value, bias: Value | None, peephole: Value | None, attrs: Attrs
    ) -> Weights:
        names = ("r_scale", "r_zero")
        found = Lstm.weights(self, g, r, bias, peephole, attrs)
        return {**found, **dict(zip(names, self.r.of(g, self.direction)))}

    def recurrent_product(self, g: GraphBuilder, h: Value, weights: Weights) -> Value:
        return quantised_product(g, h, weights["r"], weights["r_scale"], weights["r_zero"])

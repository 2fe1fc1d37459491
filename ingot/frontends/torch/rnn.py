"""Converters of recurrent layers, where tracing keeps them whole: lstm, gru, rnn.

In: x, initial states, and for each layer and direction the weights of inputs and states and their
biases. Out: one node of ops/rnn.py for each layer. Called by the importer. Gates are stored in
another order than Ingot's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.frontends.common.elements import reshape, tidy
from ingot.frontends.torch.movement import part
from ingot.frontends.torch.registry import Converter, Importer, TorchNode, aten
from ingot.graph.ir import Value

# torch's gates in the order of Ingot's: lstm i, f, g, o → i, o, f, g; gru r, z, n → z, r, n
GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn": (0,)}


def layer(
    ctx: Importer, op: str, x: Value, params: Sequence[Value], states: Sequence[Value],
    has_biases: bool, directions: int, attrs: dict[str, Any],
) -> list[Value]:  # fmt: skip
    """(y, the last states) of one layer. Each direction has two weights and maybe two biases."""
    each = len(params) // directions
    w, r = (stacked(ctx, op, [params[d * each + k] for d in range(directions)]) for k in (0, 1))
    bias = None
    if has_biases:
        halves = [stacked(ctx, op, [params[d * each + k] for d in range(directions)])
                  for k in (2, 3)]  # fmt: skip
        bias = ctx.g.add("concat", halves, axis=1)
    direction = "bidirectional" if directions == 2 else "forward"
    named = {k: v * directions if isinstance(v, tuple) else v for k, v in attrs.items()}
    operands = [x, w, r, bias, None, *states]
    return ctx.g.add_all(op, operands, direction=direction, layout=0, **named)


def stacked(ctx: Importer, op: str, params: Sequence[Value]) -> Value:
    """The parameters of the directions, gates in Ingot's order."""
    rows = []
    for x in params:
        order = GATES[op]
        size = tidy(ctx, x.shape[0] // len(order))
        gates = [part(ctx, x, 0, tidy(ctx, size * k), size) for k in order]
        made = gates[0] if len(gates) == 1 else ctx.g.add("concat", gates, axis=0)
        rows.append(reshape(ctx, made, (1, *x.shape)))
    return rows[0] if len(rows) == 1 else ctx.g.add("concat", rows, axis=0)


def recurrent(op: str, attrs: dict[str, Any]) -> Converter:
    def convert(
        ctx: Importer, node: TorchNode, x: Value, states: Any, params: Sequence[Value],
        has_biases: bool, layers: int, dropout: float, train: bool, bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Value, ...]:  # fmt: skip
        if train and dropout:
            raise ctx.unsupported(node, "dropout between layers", "call eval() first")
        given = list(states) if isinstance(states, list | tuple) else [states]
        directions, each = 2 if bidirectional else 1, 4 if has_biases else 2
        if len(params) != layers * directions * each:
            raise ctx.unsupported(node, "projections of the states (proj_size)")
        x = swapped_batch(ctx, x) if batch_first else x
        ends: list[list[Value]] = []
        for k in range(layers):
            first = k * directions
            own = [part(ctx, s, 0, first, directions) for s in given]
            chosen = params[first * each : (first + directions) * each]
            y, *last = layer(ctx, op, x, chosen, own, has_biases, directions, attrs)
            steps, _, batch, hidden = y.shape
            moved = ctx.g.add("transpose", [y], perm=(0, 2, 1, 3))
            x = reshape(ctx, moved, (steps, batch, tidy(ctx, hidden * directions)))
            ends.append(last)
        finals = [joined(ctx, [last[i] for last in ends]) for i in range(len(given))]
        return (swapped_batch(ctx, x) if batch_first else x), *finals

    return convert


def joined(ctx: Importer, states: Sequence[Value]) -> Value:
    return states[0] if len(states) == 1 else ctx.g.add("concat", list(states), axis=0)


def swapped_batch(ctx: Importer, x: Value) -> Value:
    return ctx.g.add("transpose", [x], perm=(1, 0, 2))


aten("aten.lstm.input")(recurrent("lstm", {}))
aten("aten.gru.input")(recurrent("gru", {"linear_before_reset": True}))
aten("aten.rnn_tanh.input")(recurrent("rnn", {"activations": ("tanh",)}))
aten("aten.rnn_relu.input")(recurrent("rnn", {"activations": ("relu",)}))

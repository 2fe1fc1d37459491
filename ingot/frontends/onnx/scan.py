"""The ONNX converter of Scan: a loop that gathers a slice of each scanned input per iteration.

In: a Scan node. Out: a `loop` node (ops/control.py), its outputs stacked along their axes. Called
by walker.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import cast, tidy
from ingot.frontends.onnx.common import axis_of, bad_model
from ingot.frontends.onnx.control import inline
from ingot.frontends.onnx.loop import COUNTER, check_types
from ingot.frontends.onnx.operands import FLAG
from ingot.frontends.onnx.registry import ITERATION, Importer, OnnxNode, SubGraph, onnx_op
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph, Value
from ingot.graph.types import TensorType


@onnx_op("Scan")
def scan_batched(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """Opset 8: a loop over the batch (axis 0) around the loop over the steps (axis 1). A sequence
    may be shorter than the others: then its states stay, and what follows it is zero."""
    lengths, operands = ctx.optional(node, 0), operands_of(ctx, node, 1)
    states, scanned = split_scanned(node, operands)
    if any(v.tensor.rank < 1 + (v in scanned) for v in operands):
        raise bad_model(node, "an operand has no batch axis or no axis to scan")
    backwards = node.attr("directions") or [0] * len(scanned)
    batch, steps = scanned[0].shape[:2]
    rows = [Value(v.name, without_axis(v, 0)) for v in operands]
    ends = rows[len(states) :]
    slices = [Value(v.name, without_axis(v, 0)) for v in ends]
    sub = ctx.subgraph(node, "body", [*rows[: len(states)], *slices])
    pairs = [(v, 0, backward) for v, backward in zip(ends, backwards, strict=True)]
    body = loop_body(ctx, sub, rows[: len(states)], pairs, steps, lengths is not None)
    check_types(ctx, node, body, len(states))
    captures = outer_captures(sub)
    over_batch = GraphBuilder(f"{sub.graph.name}/batch", ctx.g.store)
    over_batch.origin = ctx.g.origin
    index, go_on = over_batch.input("b", COUNTER), over_batch.input("go_on", FLAG)
    whole = [*operands, *([] if lengths is None else [cast(ctx, lengths, dtypes.i64)])]
    own = [over_batch.input(v.name, v.type) for v in whole]
    inner = [over_batch.input(v.name, v.type) for v in captures]
    each = [over_batch.add("gather", [v, index], axis=0) for v in own]
    given, length = each[: len(operands)], each[len(operands) :]
    trips = over_batch.add("index_tensor", [], values=(steps,), shape=())
    made = over_batch.add_all(
        "loop", [trips, None, *given, *inner, *length],
        body=body, carried=len(states), count=steps,
    )  # fmt: skip
    trips = ctx.g.add("index_tensor", [], values=(batch,), shape=())
    return ctx.g.add_all(
        "loop", [trips, None, *whole, *captures],
        body=over_batch.finish([go_on, *made]), carried=0, count=batch,
    )  # fmt: skip


def operands_of(ctx: Importer, node: OnnxNode, first: int) -> list[Value]:
    return [ctx.value(node, i) for i in range(first, len(node.inputs))]


def split_scanned(node: OnnxNode, operands: list[Value]) -> tuple[list[Value], list[Value]]:
    """The states, and the inputs to scan."""
    count = node.attr("num_scan_inputs")
    if not 1 <= count <= len(operands):
        what = f"num_scan_inputs is {count}, but there are {len(operands)} operands"
        raise bad_model(node, what)
    return operands[: len(operands) - count], operands[len(operands) - count :]


@onnx_op("Scan", since=9)
def scan(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """A loop over slices of the scanned inputs; outputs are stacked along an axis."""
    states, scanned = split_scanned(node, operands_of(ctx, node, 0))
    count = len(scanned)
    given = node.attr("scan_input_axes") or [0] * count
    axes = [axis_of(node, axis, v.tensor.rank) for axis, v in zip(given, scanned, strict=True)]
    backwards = node.attr("scan_input_directions") or [0] * count
    steps = scanned[0].shape[axes[0]]
    slices = [Value(v.name, without_axis(v, axis)) for v, axis in zip(scanned, axes)]
    sub = ctx.subgraph(node, "body", [*states, *slices])
    body = loop_body(ctx, sub, states, list(zip(scanned, axes, backwards)), steps)
    check_types(ctx, node, body, len(states))
    trips = ctx.g.add("index_tensor", [], values=(steps,), shape=())
    results = ctx.g.add_all(
        "loop", [trips, None, *states, *scanned, *outer_captures(sub)],
        body=body, carried=len(states), count=steps,
    )  # fmt: skip
    outputs = results[len(states) :]
    return [*results[: len(states)], *stacked(ctx, node, outputs)]


def without_axis(value: Value, axis: int) -> TensorType:
    return TensorType(value.dtype, (*value.shape[:axis], *value.shape[axis + 1 :]))


def outer_captures(sub: SubGraph) -> list[Value]:
    """The captures that are values of the outer graph."""
    return [v for v in sub.captures if v.name != ITERATION]


def loop_body(
    ctx: Importer,
    sub: SubGraph,
    states: Sequence[Value],
    scanned: Sequence[tuple[Value, int, int]],
    steps: arith.Expr,
    has_length: bool = False,
) -> Graph:
    """The body with its slices gathered first. Inputs: t, go_on, states, scanned, captures, and
    the number of steps that count, if it is not all of them."""
    g = GraphBuilder(sub.graph.name, ctx.g.store)
    g.origin = ctx.g.origin
    time, go_on = g.input("t", COUNTER), g.input("go_on", FLAG)
    own_states = [g.input(v.name, v.type) for v in states]
    wholes = [g.input(v.name, v.type) for v, _, _ in scanned]
    outer = {v.name: g.input(v.name, v.type) for v in outer_captures(sub)}
    captures = [outer.get(v.name, time) for v in sub.captures]
    length = g.input("length", COUNTER) if has_length else None
    slices = []
    for whole, (_, axis, reverse) in zip(wholes, scanned):
        index = time
        if reverse:
            last = g.add("index_tensor", [], values=(tidy(ctx, steps - 1),), shape=())
            if length is not None:
                last = g.add("sub", [length, g.constant(np.array(1))])
            index = g.add("sub", [last, time])
            if length is not None:
                index = g.add("max", [index, g.constant(np.array(0))])
        slices.append(g.add("gather", [whole, index], axis=axis))
    outputs = inline(g, sub.graph, [*own_states, *slices, *captures])
    if length is not None:
        outputs = only_within(g, g.add("lt", [time, length]), own_states, outputs)
    return g.finish([go_on, *outputs])


def only_within(
    g: GraphBuilder, is_within: Value, states: Sequence[Value], outputs: Sequence[Value]
) -> list[Value]:
    """The outputs of a step that counts; else the states as they were, and zeros."""
    rest = [g.constant(np.zeros((), v.dtype.numpy)) for v in outputs[len(states) :]]
    return [g.add("where", [is_within, *pair]) for pair in zip(outputs, [*states, *rest])]


def stacked(ctx: Importer, node: OnnxNode, outputs: Sequence[Value]) -> list[Value]:
    """Each output, reversed if asked, with its iteration axis moved to scan_output_axes."""
    axes = node.attr("scan_output_axes") or [0] * len(outputs)
    backwards = node.attr("scan_output_directions") or [0] * len(outputs)
    results = []
    for value, given, reverse in zip(outputs, axes, backwards, strict=True):
        rank = value.tensor.rank
        axis = axis_of(node, given, rank)
        if reverse:
            starts = (tidy(ctx, value.shape[0] - 1), *(0,) * (rank - 1))
            steps = (-1, *(1,) * (rank - 1))
            value = ctx.g.add("slice", [value], starts=starts, sizes=value.shape, steps=steps)
        if axis:
            perm = (*range(1, axis + 1), 0, *range(axis + 1, rank))
            value = ctx.g.add("transpose", [value], perm=perm)
        results.append(value)
    return results

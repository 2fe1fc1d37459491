"""The ONNX converter of Scan: a loop that gathers a slice of each scanned input per iteration.

In: a Scan node. Out: a `loop` node (ops/control.py), its outputs stacked along their axes. Called
by walker.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.arith import expr as arith
from ingot.frontends.common.elements import tidy
from ingot.frontends.onnx.common import axis_of, bad_model
from ingot.frontends.onnx.control import inline
from ingot.frontends.onnx.loop import COUNTER, check_types
from ingot.frontends.onnx.operands import FLAG
from ingot.frontends.onnx.registry import Importer, OnnxNode, SubGraph, onnx_op
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph, Value
from ingot.graph.types import TensorType


@onnx_op("Scan")
def scan_batched(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """Opset 8: axis 0 is a batch, axis 1 the sequence. A loop over the batch holds the scan of one
    of its rows; final states and outputs are stacked."""
    if ctx.optional(node, 0) is not None:
        why = "Scan of opset 8 with sequence_lens"
        raise ctx.unsupported(node, why, "export with opset 9 or newer")
    operands = [ctx.value(node, i) for i in range(1, len(node.inputs))]
    count = node.attr("num_scan_inputs")
    if not 1 <= count <= len(operands) or any(v.tensor.rank < 2 for v in operands[-count:]):
        raise bad_model(node, f"{len(operands)} operands do not fit num_scan_inputs {count}")
    batch, steps = operands[-count].shape[:2]
    rows = [Value(v.name, without_axis(v, 0)) for v in operands]
    states, scanned = rows[: len(rows) - count], rows[len(rows) - count :]
    slices = [Value(v.name, without_axis(v, 0)) for v in scanned]
    sub = ctx.subgraph(node, "body", [*states, *slices])
    backwards = node.attr("directions") or [0] * count
    inner = loop_body(ctx, sub, states, [(v, 0, b) for v, b in zip(scanned, backwards)], steps)
    check_types(ctx, node, inner, len(states))
    g = GraphBuilder(f"{sub.graph.name}/batch", ctx.g.store)
    g.origin = ctx.g.origin
    number, go_on = g.input("b", COUNTER), g.input("go_on", FLAG)
    wholes = [g.input(v.name, v.type) for v in operands]
    captures = [g.input(v.name, v.type) for v in sub.captures]
    own = [g.add("gather", [v, number], axis=0) for v in wholes]
    trips = g.add("index_tensor", [], values=(steps,), shape=())
    loop = {"body": inner, "carried": len(states), "count": steps}
    body = g.finish([go_on, *g.add_all("loop", [trips, None, *own, *captures], **loop)])
    times = ctx.g.add("index_tensor", [], values=(batch,), shape=())
    return ctx.g.add_all(
        "loop", [times, None, *operands, *sub.captures], body=body, carried=0, count=batch
    )


@onnx_op("Scan", since=9)
def scan(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """A loop over slices of the scanned inputs; outputs are stacked along an axis."""
    operands = [ctx.value(node, i) for i in range(len(node.inputs))]
    count = node.attr("num_scan_inputs")
    if not 1 <= count <= len(operands):
        what = f"num_scan_inputs is {count}, but there are {len(operands)} operands"
        raise bad_model(node, what)
    states, scanned = operands[: len(operands) - count], operands[len(operands) - count :]
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
        "loop", [trips, None, *states, *scanned, *sub.captures],
        body=body, carried=len(states), count=steps,
    )  # fmt: skip
    outputs = results[len(states) :]
    return [*results[: len(states)], *stacked(ctx, node, outputs)]


def without_axis(value: Value, axis: int) -> TensorType:
    return TensorType(value.dtype, (*value.shape[:axis], *value.shape[axis + 1 :]))


def loop_body(
    ctx: Importer,
    sub: SubGraph,
    states: Sequence[Value],
    scanned: Sequence[tuple[Value, int, int]],
    steps: arith.Expr,
) -> Graph:
    """The body with its slices gathered first. Inputs: t, go_on, states, scanned, captures."""
    g = GraphBuilder(sub.graph.name, ctx.g.store)
    g.origin = ctx.g.origin
    time, go_on = g.input("t", COUNTER), g.input("go_on", FLAG)
    own_states = [g.input(v.name, v.type) for v in states]
    wholes = [g.input(v.name, v.type) for v, _, _ in scanned]
    captures = [g.input(v.name, v.type) for v in sub.captures]
    slices = []
    for whole, (_, axis, reverse) in zip(wholes, scanned):
        index = time
        if reverse:
            last = g.add("index_tensor", [], values=(tidy(ctx, steps - 1),), shape=())
            index = g.add("sub", [last, time])
        slices.append(g.add("gather", [whole, index], axis=axis))
    outputs = inline(g, sub.graph, [*own_states, *slices, *captures])
    return g.finish([go_on, *outputs])


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

"""ONNX converters of control flow: If, Loop, Scan.

In: ONNX nodes with sub-graphs. Out: `if` and `loop` nodes (ops/control.py). Called by walker. An If
with a constant condition is replaced by the branch taken. If only one branch type-checks (alone, or
with the nodes after it, where the branches differ in rank), it replaces the If, with a run-time
check. A Scan is a loop that gathers a slice of each scanned input per iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.bounds import Interval, prove
from ingot.frontends.common.elements import as_scalar, cast, tidy
from ingot.frontends.onnx.common import axis_of, bad_model
from ingot.frontends.onnx.registry import ITERATION, Importer, OnnxNode, SubGraph, onnx_op
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import ConstRef, Graph, Value, replace
from ingot.graph.store import ConstantStore
from ingot.graph.types import TensorType, tensor
from ingot.graph.verify import types_agree
from ingot.ops.control import differing_sizes, local_symbols
from ingot.support.errors import IngotError

COUNTER, FLAG = tensor(dtypes.i64), tensor(dtypes.bool_)


# --- If -----------------------------------------------------------------------------------------


@onnx_op("If")
def convert_if(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    known = ctx.known(node, 0)
    if known is not None:
        taken = ctx.subgraph(node, "then_branch" if known.reshape(()) else "else_branch", [])
        return inline(ctx.g, taken.graph, taken.captures)
    then, other = (branch_of(ctx, node, name) for name in ("then_branch", "else_branch"))
    if then is None or other is None:
        return only_branch(ctx, node, then, other)
    then, other = _of_one_rank(ctx, then, other), _of_one_rank(ctx, other, then)
    if ranks_differ(then.graph, other.graph):
        return chosen_branch(ctx, node, then, other)
    # by name: walking the second branch may have equated sizes in the type of a value
    captures = list({v.name: v for v in (*then.captures, *other.captures)}.values())
    branches = [with_captures(branch, captures) for branch in (then, other)]
    attrs: dict[str, Any] = dict(zip(("then_branch", "else_branch"), branches))
    pairs = differing_sizes(*branches)
    if pairs:
        attrs["symbols"] = tuple(ctx.g.symbol("n") for _ in pairs)
    return ctx.g.add_all("if", [as_scalar(ctx, ctx.value(node, 0)), *captures], **attrs)


def _of_one_rank(ctx: Importer, branch: SubGraph, other: SubGraph) -> SubGraph:
    """The branch with results of one element in the shape of the other's, if that has the higher
    rank: exporters mix rank 0 and rank 1."""
    pairs = list(zip(branch.graph.outputs, other.graph.outputs))
    lower = [
        all(arith.is_const(d, 1) for v in (a, b) for d in v.type.shape)
        and len(a.type.shape) < len(b.type.shape)
        for a, b in pairs
    ]
    if not any(lower):
        return branch
    g, outputs = _copied(branch.graph, ctx.g.store)
    made = [
        g.add("reshape", [v], shape=b.type.shape) if is_lower else v
        for v, (_, b), is_lower in zip(outputs, pairs, lower)
    ]
    return replace(branch, graph=g.finish(made))


def ranks_differ(then: Graph, other: Graph) -> bool:
    return any(a.tensor.rank != b.tensor.rank for a, b in zip(then.outputs, other.outputs))


def branch_of(ctx: Importer, node: OnnxNode, name: str) -> SubGraph | None:
    """A branch, or None if it does not type-check at the given sizes and the walk was restarted for
    that reason: the branch is for other sizes (silero's two sample rates)."""
    try:
        return ctx.subgraph(node, name, [])
    except IngotError:
        if ctx.choose(node, f"{name} can run"):
            raise
        return None


def only_branch(
    ctx: Importer, node: OnnxNode, then: SubGraph | None, other: SubGraph | None
) -> list[Value]:
    taken = other if then is None else then
    if taken is None:
        raise bad_model(node, "neither of its branches can be imported")
    missing = "then" if then is None else "else"
    reason = f"If takes its {missing} branch, which does not fit the sizes compiled for"
    return required_branch(ctx, node, taken, then is not None, reason)


def chosen_branch(ctx: Importer, node: OnnxNode, then: SubGraph, other: SubGraph) -> list[Value]:
    """One branch, where the two return tensors of different ranks: the nodes after the If accept
    only one of them (PyTorch exports a Squeeze that may have nothing to squeeze like this). The
    walker finds it by backtracking."""
    expected = ctx.choose(node, "then_branch fits what follows")
    taken, left = (then, other) if expected else (other, then)
    given = ", ".join(str(v.type) for v in left.graph.outputs)
    reason = f"If takes its {'else' if expected else 'then'} branch, which returns {given}"
    return required_branch(ctx, node, taken, expected, reason)


def required_branch(
    ctx: Importer, node: OnnxNode, taken: SubGraph, expected: bool, reason: str
) -> list[Value]:
    """The branch inlined in place of the If; a run in which the condition differs fails."""
    flag = as_scalar(ctx, ctx.value(node, 0))

    def required(values: Sequence[Value]) -> list[Value]:
        return [ctx.g.add("require", [v, flag], expected=expected, reason=reason) for v in values]

    if taken.captures:  # checked first, so that no other error in the branch hides this one
        return inline(ctx.g, taken.graph, required(taken.captures))
    return required(inline(ctx.g, taken.graph, []))


def with_captures(branch: SubGraph, captures: Sequence[Value]) -> Graph:
    """The branch with the captures of both as inputs, in one order; some are unused."""
    own = dict(zip((v.name for v in branch.captures), branch.graph.inputs))
    taken = {v.name for v in branch.graph.inputs}
    taken |= {v.name for n in branch.graph.nodes for v in n.outputs}
    inputs = []
    for value in captures:
        if value.name not in own:
            name = value.name
            while name in taken:
                name += "_unused"
            taken.add(name)
            own[value.name] = Value(name, value.type)
        inputs.append(own[value.name])
    return replace(branch.graph, inputs=tuple(inputs))


def inline(g: GraphBuilder, graph: Graph, arguments: Sequence[Value]) -> list[Value]:
    """Append the graph's nodes to `g`, with its inputs replaced. Returns its outputs."""
    env = {v.name: argument for v, argument in zip(graph.inputs, arguments)}
    origin = g.origin
    for symbol in graph.symbols:
        g.symbols.setdefault(symbol.name, symbol)
    for n in graph.nodes:
        g.origin = n.origin or origin
        operands = [None if v is None else env[v.name] for v in n.inputs]
        types = [v.tensor for v in n.outputs]
        made = g.raw(n.op, operands, n.attr_map, types, [v.name for v in n.outputs])
        env.update(zip((v.name for v in n.outputs), made))
    g.origin = origin
    return [env[v.name] for v in graph.outputs]


# --- Loop ---------------------------------------------------------------------------------------


@onnx_op("Loop")
def convert_loop(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    trips, cond = ctx.optional(node, 0), ctx.optional(node, 1)
    carried = [ctx.value(node, i) for i in range(2, len(node.inputs))]
    heads = [Value("iteration", COUNTER), Value("condition", FLAG)]
    sub = ctx.subgraph(node, "body", [(v.name, v) for v in (*heads, *carried)])
    entered = _as_on_exit(ctx, carried, sub.graph)
    if entered != carried:
        carried = entered
        sub = ctx.subgraph(node, "body", [(v.name, v) for v in (*heads, *carried)])
    body = scalar_condition(sub.graph, ctx.g.store)
    body = with_single_elements(body, len(carried), ctx.g.store)
    check_body(ctx, node, body, len(carried))
    count = known_count(ctx, node, body, cond)
    operands = [
        None if trips is None else cast(ctx, as_scalar(ctx, trips), dtypes.i64),
        None if cond is None else as_scalar(ctx, cond),
        *carried,
        *sub.captures,
    ]
    attrs: dict[str, Any] = {"body": body, "carried": len(carried)}
    if len(body.outputs) > 1 + len(carried):
        if count is not None:
            attrs["count"] = count
        else:
            attrs["symbols"] = (ctx.g.symbol("trips"),)
    return ctx.g.add_all("loop", operands, **attrs)


def _as_on_exit(ctx: Importer, carried: Sequence[Value], body: Graph) -> list[Value]:
    """Carried values of one element, in the shape that an iteration gives them. Exporters let one
    have rank 0 before the loop and rank 1 after it, or enter a placeholder that no iteration
    reads for a tensor that is made inside. (After no iteration it has that shape too.)"""
    read = {v.name for n in body.nodes for v in n.inputs if v is not None}
    read |= {v.name for v in body.outputs}
    local, entered = local_symbols(body), list(carried)
    for i, (value, formal, out) in enumerate(zip(carried, body.inputs[2:], body.outputs[1:])):
        is_one = all(arith.is_const(d, 1) for d in value.type.shape)
        is_known = not any(arith.free_vars(d) & local for d in out.type.shape)
        stays_one = all(arith.is_const(d, 1) for d in out.type.shape)
        if value.dtype is not out.dtype or value.type.shape == out.type.shape or not is_one:
            continue
        if stays_one:
            entered[i] = ctx.g.add("reshape", [value], shape=out.type.shape)
        elif is_known and formal.name not in read:
            scalar = ctx.g.add("reshape", [value], shape=())
            entered[i] = ctx.g.add("expand", [scalar], shape=out.type.shape)
    return entered


def scalar_condition(body: Graph, store: ConstantStore) -> Graph:
    """Reshape the condition to rank 0: exporters write one element of any shape."""
    if body.outputs[0].type == FLAG:
        return body
    g, outputs = _copied(body, store)
    return g.finish([g.add("reshape", [outputs[0]], shape=()), *outputs[1:]])


def with_single_elements(body: Graph, carried: int, store: ConstantStore) -> Graph:
    """Outputs whose sizes are 0 or 1 for all that is known, as a slice of one element at a position
    that is data has them, where size 1 is needed: of values carried with size 1, and of scan
    outputs. They are reshaped to it, which checks the size when running."""
    ranges = {s.name: Interval(s.low, s.high) for s in body.symbols}
    local = local_symbols(body)

    def is_single(size: arith.Expr) -> bool:
        names = arith.free_vars(size)
        known = {name: ranges.get(name, Interval(0, None)) for name in names}
        return bool(names & local) and prove("le", size, 1, known)

    def single(value: Value, wanted: Sequence[arith.Expr]) -> tuple[arith.Expr, ...]:
        pairs = zip(value.shape, wanted, strict=True)
        return tuple(
            arith.Const(1) if arith.is_const(w, 1) and is_single(d) else d for d, w in pairs
        )

    entered = [v.shape for v in body.inputs[2 : 2 + carried]]
    ones = [(arith.Const(1),) * v.tensor.rank for v in body.outputs[1 + carried :]]
    shapes = [body.outputs[0].shape]
    for value, wanted in zip(body.outputs[1:], [*entered, *ones]):
        is_alike = len(wanted) == value.tensor.rank
        shapes.append(single(value, wanted) if is_alike else value.shape)
    if all(v.shape == shape for v, shape in zip(body.outputs, shapes)):
        return body
    g, outputs = _copied(body, store)
    pairs = zip(outputs, shapes)
    return g.finish([v if v.shape == s else g.add("reshape", [v], shape=s) for v, s in pairs])


def _copied(graph: Graph, store: ConstantStore) -> tuple[GraphBuilder, list[Value]]:
    """A builder that holds the graph's inputs and nodes, and its outputs."""
    g = GraphBuilder(graph.name, store)
    g.inputs.extend(graph.inputs)
    for value in graph.inputs:
        g.fresh(value.name)
    return g, inline(g, graph, graph.inputs)


def check_body(ctx: Importer, node: OnnxNode, body: Graph, carried: int) -> None:
    if len(body.outputs) < 1 + carried:
        raise bad_model(
            node, f"its body has {len(body.outputs)} outputs and {carried} carried values"
        )
    for before, after in zip(body.inputs[2:], body.outputs[1 : 1 + carried]):
        if not types_agree(before.type, after.type, {}):
            raise ctx.unsupported(
                node,
                f"carried value {before.name!r} has type {before.type} on entry and {after.type} "
                "on exit; it must keep its type and shape",
            )
    local = local_symbols(body)
    for value in body.outputs[1 + carried :]:
        if any(arith.free_vars(d) & local for d in value.shape):
            raise ctx.unsupported(
                node, f"the size of scan output {value.name!r} may change between iterations"
            )


def known_count(
    ctx: Importer, node: OnnxNode, body: Graph, cond: Value | None
) -> arith.Expr | None:
    """The number of iterations, if only a constant trip count can end the loop."""
    starts = cond is None or is_true(ctx.known(node, 1))
    if ctx.optional(node, 0) is None or not starts or not is_condition_invariant(body, ctx.g.store):
        return None
    number = ctx.known(node, 0)
    if number is not None:
        return arith.Const(max(0, int(number.reshape(()))))
    return None


def is_true(array) -> bool:
    return array is not None and bool(array.reshape(()))


def is_condition_invariant(body: Graph, store: ConstantStore) -> bool:
    """Whether the body returns its condition unchanged, or a constant true."""
    producers, value = body.producers(), body.outputs[0]
    while value.name in producers:
        producer = producers[value.name]
        ref = producer.attr("value")
        if isinstance(ref, ConstRef):
            return bool(store.get(ref).reshape(()))
        if producer.op not in ("identity", "reshape") or producer.inputs[0] is None:
            return False
        value = producer.inputs[0]
    return value.name == body.inputs[1].name


# --- Scan ---------------------------------------------------------------------------------------


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
    sub = ctx.subgraph(node, "body", [(v.name, v) for v in (*rows[: len(states)], *slices)])
    pairs = [(v, 0, backward) for v, backward in zip(ends, backwards, strict=True)]
    body = loop_body(ctx, sub, rows[: len(states)], pairs, steps, lengths is not None)
    check_body(ctx, node, body, len(states))
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
    sub = ctx.subgraph(node, "body", [(v.name, v) for v in (*states, *slices)])
    body = loop_body(ctx, sub, states, list(zip(scanned, axes, backwards)), steps)
    check_body(ctx, node, body, len(states))
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

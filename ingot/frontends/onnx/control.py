"""The ONNX converter of If, and how graphs are copied into others. Loop: loop.py, Scan: scan.py.

In: ONNX nodes with sub-graphs. Out: `if` nodes (ops/control.py). Called by walker. An If with a
constant condition is replaced by the branch taken. If only one branch type-checks (alone, or with
the nodes after it, where the branches differ in rank), it replaces the If, with a run-time check.
Sequences and optionals that the branches return are converted to one kind (operands.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ingot.arith import expr as arith
from ingot.frontends.common.elements import as_scalar
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.operands import (
    Operand,
    OperandKind,
    SequenceList,
    all_parts,
    all_rebuilt,
    converted,
    joined,
    kind_of,
)
from ingot.frontends.onnx.registry import Importer, OnnxNode, SubGraph, onnx_op
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph, Value, replace
from ingot.graph.store import ConstantStore
from ingot.ops.control import differing_sizes
from ingot.support.errors import IngotError


@onnx_op("If")
def convert_if(ctx: Importer, node: OnnxNode) -> Sequence[Operand]:
    known = ctx.known(node, 0)
    if known is not None:
        taken = ctx.subgraph(node, "then_branch" if known.reshape(()) else "else_branch", [])
        return all_rebuilt(taken.results, inline(ctx.g, taken.graph, taken.captures))
    then, other = (branch_of(ctx, node, name) for name in ("then_branch", "else_branch"))
    if then is None or other is None:
        return only_branch(ctx, node, then, other)
    if len(then.results) != len(other.results):
        raise bad_model(node, "its branches have different numbers of outputs")
    then, other = _of_one_kind(ctx, then, other), _of_one_kind(ctx, other, then)
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
    flag = as_scalar(ctx, ctx.value(node, 0))
    return all_rebuilt(then.results, ctx.g.add_all("if", [flag, *captures], **attrs))


def _of_one_kind(ctx: Importer, branch: SubGraph, other: SubGraph) -> SubGraph:
    """The branch with results of the kinds that both branches' results can be converted to. Lists
    of equally many tensors stay lists."""
    kinds: list[OperandKind | None] = []
    for a, b in zip(branch.results, other.results):
        is_plain = isinstance(a, Value) and isinstance(b, Value)
        kinds.append(None if is_plain or _are_alike(a, b) else joined(kind_of(a), kind_of(b)))
    return with_kinds(ctx, branch, kinds)


def _are_alike(a: Operand, b: Operand) -> bool:
    """Lists whose elements can be merged one by one."""
    if not isinstance(a, SequenceList) or not isinstance(b, SequenceList):
        return False
    kinds = [[(v.dtype, v.tensor.rank) for v in x.items] for x in (a, b)]
    return kinds[0] == kinds[1] and a.dtype is b.dtype


def with_kinds(ctx: Importer, sub: SubGraph, kinds: Sequence[OperandKind | None]) -> SubGraph:
    """The sub-graph with its results converted to these kinds; None leaves one as it is."""
    if all(kind is None for kind in kinds):
        return sub
    g, outputs = copied(sub.graph, ctx.g.store)
    inside = Bare(g)
    results = all_rebuilt(sub.results, outputs)
    made = [x if kind is None else converted(inside, x, kind) for x, kind in zip(results, kinds)]
    return replace(sub, graph=g.finish(all_parts(made)), results=tuple(made))


@dataclass
class Bare:
    """A builder, where an importer is asked for one."""

    g: GraphBuilder


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
    g, outputs = copied(branch.graph, ctx.g.store)
    made = [
        g.add("reshape", [v], shape=b.type.shape) if is_lower else v
        for v, (_, b), is_lower in zip(outputs, pairs, lower)
    ]
    return replace(branch, graph=g.finish(made), results=tuple(all_rebuilt(branch.results, made)))


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
) -> list[Operand]:
    taken = other if then is None else then
    if taken is None:
        raise bad_model(node, "neither of its branches can be imported")
    missing = "then" if then is None else "else"
    reason = f"If takes its {missing} branch, which does not fit the sizes compiled for"
    return required_branch(ctx, node, taken, then is not None, reason)


def chosen_branch(ctx: Importer, node: OnnxNode, then: SubGraph, other: SubGraph) -> list[Operand]:
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
) -> list[Operand]:
    """The branch inlined in place of the If; a run in which the condition differs fails."""
    flag = as_scalar(ctx, ctx.value(node, 0))

    def required(values: Sequence[Value]) -> list[Value]:
        return [ctx.g.add("require", [v, flag], expected=expected, reason=reason) for v in values]

    if taken.captures:  # checked first, so that no other error in the branch hides this one
        made = inline(ctx.g, taken.graph, required(taken.captures))
    else:
        made = required(inline(ctx.g, taken.graph, []))
    return all_rebuilt(taken.results, made)


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


def copied(graph: Graph, store: ConstantStore) -> tuple[GraphBuilder, list[Value]]:
    """A builder that holds the graph's inputs and nodes, and its outputs."""
    g = GraphBuilder(graph.name, store)
    g.inputs.extend(graph.inputs)
    for value in graph.inputs:
        g.fresh(value.name)
    return g, inline(g, graph, graph.inputs)

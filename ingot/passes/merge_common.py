"""Common subexpression elimination (CSE). Called by the pipeline."""

from __future__ import annotations

from typing import Any

from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node
from ingot.graph.store import ConstantStore
from ingot.graph.verify import bound_symbols, without_symbols
from ingot.passes.edit import Editor, map_subgraphs, same_type


def merge_common(graph: Graph, store: ConstantStore) -> Graph:
    """Merge nodes of one operator with equal operands and attributes, and equal constants. Symbols
    bound by the second node are replaced by those of the first."""
    merged = _sweep(graph, store)
    while merged != graph:  # an identity that keeps an output's name may become redundant
        graph, merged = merged, _sweep(merged, store)
    return graph


def _sweep(graph: Graph, store: ConstantStore) -> Graph:
    edit = Editor(graph, store)
    first: dict[Any, Node] = {}
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: merge_common(g, store))
        same = first.setdefault(_key(node), node)
        if same is node or not _merge_sizes(edit, node, same):
            edit.keep(node)
        else:
            edit.replace(node, same.outputs)
    return edit.finish()


def _merge_sizes(edit: Editor, node: Node, same: Node) -> bool:
    """Replace the symbols of `node` by those of `same`; whether the output types are then equal."""
    pairs = zip(bound_symbols(node), bound_symbols(same))
    env = {mine: arith.Var(theirs) for mine, theirs in pairs}
    if not env:
        return all(same_type(a.type, b.type) for a, b in zip(node.outputs, same.outputs))
    edit.sizes |= env
    return True


def _key(node: Node) -> Any:
    inputs = tuple(None if v is None else v.name for v in node.inputs)
    attrs = tuple((k, _exact(v)) for k, v in without_symbols(node))
    return node.op, inputs, len(node.outputs), len(bound_symbols(node)), attrs


def _exact(value: Any) -> Any:
    """A key that distinguishes values which Python compares equal: 1, 1.0, True; 0.0, -0.0."""
    if isinstance(value, tuple):
        return tuple(_exact(v) for v in value)
    if isinstance(value, float):
        return float, repr(value)
    return (bool, value) if isinstance(value, bool) else value

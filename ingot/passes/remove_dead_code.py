"""Dead code elimination (DCE): removes nodes that no output needs. Called by the pipeline."""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node, replace
from ingot.graph.store import ConstantStore
from ingot.graph.verify import bound_symbols, type_dims
from ingot.passes.edit import map_subgraphs, mentioned_symbols


def remove_dead_code(graph: Graph, store: ConstantStore) -> Graph:
    """Keep a node if a graph output depends on a value it produces or on a symbol it binds, or if
    it checks an assumption that the graph was imported under. Inputs stay, used or not; a symbol
    stays if a kept node or the graph's types use it."""
    values = {v.name for v in graph.outputs}
    sizes = {n for v in (*graph.inputs, *graph.outputs) for n in _names(v.type)}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if _is_live(node, values, sizes):
            kept.append(node)
            values |= {v.name for v in node.inputs if v is not None}
            sizes |= mentioned_symbols(node)
    nodes = [map_subgraphs(n, lambda g: remove_dead_code(g, store)) for n in reversed(kept)]
    bound = {name for n in kept for name in bound_symbols(n)}
    symbols = tuple(s for s in graph.symbols if s.name in sizes | bound)
    return replace(graph, nodes=tuple(nodes), symbols=symbols)


def _is_live(node: Node, values: set[str], sizes: set[str]) -> bool:
    if node.op == "require":  # a check that must hold, also where its value is known already
        return True
    makes = any(v.name in values for v in node.outputs)
    return makes or any(name in sizes for name in bound_symbols(node))


def _names(type) -> set[str]:
    return {n for d in type_dims(type) for n in arith.free_vars(d)}

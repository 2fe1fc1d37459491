"""Likely sizes by use: how operators use a dynamic dimension says what to expect of it.

    x: f32[steps, batch, 64]; y = lstm(x, …)   →   symbol batch likely 1, nothing assumed of steps

An importer takes the first axis of an input for a batch, and a batch is probably 1. A recurrent
layer says which axis is the batch and which one is time (`OpDef.size_uses`). Decisions read it, and
the code is right for every size. In: a Graph. Out: it, with other `likely` values. Called by the
pipeline.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.graph.ir import Graph, replace
from ingot.graph.opdef import Use, defn
from ingot.graph.types import Symbol


def infer_likely_sizes(graph: Graph) -> Graph:
    """Set the likely value of each symbol that a node uses as a batch or as a length."""
    uses: dict[str, set[Use]] = {}
    for node in graph.nodes:
        types = [None if v is None else v.type for v in node.inputs]
        for size, use in defn(node).size_uses(types, node.attr_map):
            if isinstance(size, arith.Var):
                uses.setdefault(size.name, set()).add(use)
    symbols = tuple(_revised(s, uses.get(s.name, set())) for s in graph.symbols)
    return graph if symbols == graph.symbols else replace(graph, symbols=symbols)


def _revised(symbol: Symbol, uses: set[Use]) -> Symbol:
    if Use.LENGTH in uses:
        return replace(symbol, likely=None)
    is_possible = symbol.low <= 1 and (symbol.high is None or symbol.high >= 1)
    return replace(symbol, likely=1) if Use.BATCH in uses and is_possible else symbol

"""Parts of a graph, as graphs that stand alone. In: a graph and which of its nodes. Out: a graph
whose inputs are the values that these nodes read, or None if they cannot stand alone.

Constants come along. Dynamic dimensions stay where the inputs tell them; else the part is made for
the sizes of one run. Called by shrink.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ingot.arith import expr as arith
from ingot.arith.solve import solve
from ingot.graph import verify
from ingot.graph.ir import Graph, Node, Value, replace
from ingot.graph.substitute import substitute_graph
from ingot.graph.types import Symbol
from ingot.graph.verify import bound_symbols
from ingot.passes.edit import mentioned_symbols, outer_symbols
from ingot.support.errors import IngotError


def computing(graph: Graph) -> list[int]:
    """The positions of the nodes that compute: all but the constants."""
    return [i for i, n in enumerate(graph.nodes) if n.op != "constant"]


def part(graph: Graph, positions: Sequence[int], arrays: Mapping[str, np.ndarray]) -> Graph | None:
    """The nodes at `positions` as a graph; `arrays` are all values of one run of the whole."""
    chosen = set(positions)
    read = {v.name for i in chosen for v in graph.nodes[i].inputs if v is not None}
    constants = [
        i for i, n in enumerate(graph.nodes)
        if n.op == "constant" and any(v.name in read for v in n.outputs)
    ]  # fmt: skip
    nodes = tuple(graph.nodes[i] for i in sorted({*chosen, *constants}))
    inputs, outputs = _inputs(nodes), _outputs(graph, nodes)
    made = replace(
        graph, inputs=inputs, outputs=outputs, nodes=nodes, state=(), views=(), growth=None,
        bundles=(), symbols=_symbols(graph, nodes, inputs),
    )  # fmt: skip
    for candidate in (made, _for_sizes(graph, made, arrays)):
        if candidate is not None and _is_valid(candidate):
            return candidate
    return None


def _inputs(nodes: Iterable[Node]) -> tuple[Value, ...]:
    made: set[str] = set()
    found: dict[str, Value] = {}
    for node in nodes:
        for value in node.inputs:
            if value is not None and value.name not in made:
                found.setdefault(value.name, value)
        made |= {v.name for v in node.outputs}
    return tuple(found.values())


def _outputs(graph: Graph, nodes: Sequence[Node]) -> tuple[Value, ...]:
    """What the rest of the graph reads, or its caller."""
    inside = {v.name: v for n in nodes if n.op != "constant" for v in n.outputs}
    mine = {id(n) for n in nodes}
    read = {v.name for n in graph.nodes if id(n) not in mine for v in n.inputs if v is not None}
    read |= {v.name for v in graph.outputs}
    return tuple(v for name, v in inside.items() if name in read)


def _symbols(graph: Graph, nodes: Sequence[Node], inputs: Sequence[Value]) -> tuple[Symbol, ...]:
    """The symbols that the nodes mention; one that no node binds any more is that of an input."""
    piece = replace(graph, inputs=tuple(inputs), nodes=tuple(nodes), outputs=())
    used = outer_symbols(piece) | {n for node in nodes for n in mentioned_symbols(node)}
    bound = {name for node in nodes for name in bound_symbols(node)}
    return tuple(
        replace(s, source="node" if s.name in bound else "input")
        for s in graph.symbols
        if s.name in used | bound
    )


def _for_sizes(graph: Graph, piece: Graph, arrays: Mapping[str, np.ndarray]) -> Graph | None:
    """The part with every symbol that it does not bind replaced by its size in the run."""
    bound = {name for node in piece.nodes for name in bound_symbols(node)}
    sizes = {name: n for name, n in run_sizes(graph, arrays).items() if name not in bound}
    return substitute_graph(piece, sizes) if sizes else None


def run_sizes(graph: Graph, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    """The value of each symbol in a run, from the shapes of its values."""
    values = [*graph.inputs, *(v for n in graph.nodes for v in n.outputs)]
    pairs = [p for v in values if v.name in arrays for p in zip(v.shape, arrays[v.name].shape)]
    return {name: arith.evaluate(size, {}) for name, size in solve(pairs).items()}


def _is_valid(graph: Graph) -> bool:
    if not graph.outputs:
        return False
    try:
        verify.verify(graph)
    except IngotError:
        return False
    return True

"""A graph in a notebook. In: a Graph. Out: HTML (support/html.py). Loaded by name."""

from __future__ import annotations

from collections import Counter

from ingot.graph.ir import Graph
from ingot.graph.types import show_dim
from ingot.support.html import details, page, table
from ingot.support.origins import layer_names

NODES_SHOWN = 500  # a notebook keeps what it shows; the text form has all


def graph_html(graph: Graph) -> str:
    counts = Counter(node.op for node in graph.nodes if node.op != "constant")
    constants = sum(node.op == "constant" for node in graph.nodes)
    about = f"{counts.total()} nodes, {constants} constants"
    if graph.symbols:
        about += " · dynamic: " + ", ".join(s.name for s in graph.symbols)
    ports = [
        (what, value.name, str(value.type))
        for what, values in (("input", graph.inputs), ("output", graph.outputs))
        for value in values
    ]
    return page(
        f"Graph {graph.name}",
        about,
        table(("", "name", "type"), ports, code=(1, 2)),
        details("operators", table(("operator", "nodes"), counts.most_common(), numbers=(1,))),
        details(_nodes_summary(counts.total()), table(*_nodes(graph), code=(0, 1, 2))),
    )


def _nodes_summary(count: int) -> str:
    return f"the first {NODES_SHOWN} nodes" if count > NODES_SHOWN else "nodes"


def _nodes(graph: Graph) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    rows: list[tuple[str, ...]] = []
    for node in [n for n in graph.nodes if n.op != "constant"][:NODES_SHOWN]:
        operands = ", ".join("_" if v is None else v.name for v in node.inputs)
        types = ", ".join(
            f"{v.type.dtype}[{', '.join(map(show_dim, v.type.shape))}]" for v in node.outputs
        )
        results = ", ".join(v.name for v in node.outputs)
        rows.append((results, types, f"{node.op}({operands})", layer_names(node.origin)))
    return ("value", "type", "node", "in the model"), rows

"""Which constants of a graph need a buffer, plain or packed. Called by lower.py."""

from __future__ import annotations

from collections.abc import Iterator

from ingot.graph.ir import ConstRef, Graph, Node, Value
from ingot.ops.relayout import packs_constant


def constants_to_allocate(graph: Graph) -> Iterator[tuple[Value, ConstRef, bool]]:
    """Constants that need a buffer, in the graph's order: (value, constant, is it packed by a
    relayout). A plain constant needs one only if a node other than its packing reads it."""
    refs = {n.outputs[0].name: n.attr("value") for n in graph.nodes if n.op == "constant"}
    packings: dict[str, Node] = {}
    read = {value.name for value in graph.outputs}
    for node in graph.nodes:
        if packs_constant(node, refs):
            packings[node.outputs[0].name] = node
        else:
            read.update(value.name for value in node.inputs if value is not None)
    for node in graph.nodes:
        out = node.outputs[0]
        if out.name in packings:
            assert node.inputs[0] is not None
            yield out, refs[node.inputs[0].name], True
        elif out.name in refs and out.name in read:
            yield out, refs[out.name], False

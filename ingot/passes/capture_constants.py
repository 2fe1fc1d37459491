"""Constant propagation into control flow: a captured constant becomes one of the sub-graph.

    w = constant; loop(…, w){body(…, w_in)}  →  loop(…){body(…): w_in = constant}

A cell's recurrent weights are captured by the loop over time. Inside the body they are operands
like any other; only a constant of the body itself can be folded, or packed into panels for the GEMM
when compiling. In: a Graph. Out: a Graph. Called by the pipeline, after composite operators have
become loops.
"""

from __future__ import annotations

from collections.abc import Mapping

from ingot.graph.ir import ConstRef, Graph, Node, make_attrs, replace
from ingot.graph.store import ConstantStore
from ingot.passes.edit import Editor, constant_ref, map_subgraphs
from ingot.passes.hoist_invariants import HEADS


def capture_constants(graph: Graph, store: ConstantStore) -> Graph:
    """Move captured constants into the sub-graphs that capture them, at all depths."""
    edit = Editor(graph, store)
    for original in graph.nodes:
        node = _with_constants(edit, edit.current(original))
        edit.keep(map_subgraphs(node, lambda g: capture_constants(g, store)))
    return edit.finish()


def _with_constants(edit: Editor, node: Node) -> Node:
    first = _first_capture(node)
    if first is None:
        return node
    found: dict[int, ConstRef] = {}  # by position among the captures
    for position, value in enumerate(node.inputs[first:]):
        producer = edit.producer(value)
        if producer is not None and (ref := constant_ref(producer)) is not None:
            found[position] = ref
    if not found:
        return node
    kept = [v for i, v in enumerate(node.inputs[first:]) if i not in found]
    count = len(node.inputs) - first
    made = map_subgraphs(node, lambda sub: _own_constants(sub, len(sub.inputs) - count, found))
    return replace(made, inputs=(*node.inputs[:first], *kept))


def _first_capture(node: Node) -> int | None:
    """The position of the first captured operand; None if the node has no sub-graphs."""
    match node.op:
        case "if":
            return 1
        case "loop":
            return HEADS + node.attr("carried")
    return None


def _own_constants(sub: Graph, first: int, found: Mapping[int, ConstRef]) -> Graph:
    """The sub-graph with some of its captured inputs, from the first on, as own constants."""
    formals = {first + i: ref for i, ref in found.items()}
    outputs = {v.name for v in sub.outputs}
    own = [
        Node("constant", (), (sub.inputs[i],), make_attrs({"value": ref}))
        for i, ref in formals.items()
        if sub.inputs[i].name in outputs or sub.uses().get(sub.inputs[i].name)
    ]
    inputs = tuple(v for i, v in enumerate(sub.inputs) if i not in formals)
    return replace(sub, inputs=inputs, nodes=(*own, *sub.nodes))

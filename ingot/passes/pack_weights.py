"""Repacks weights of 2, 4 or 8 bits into words, in panels of columns, as the CPU's loops read them.

    matmul_packed(x, rows of bytes, …)   →   matmul_packed(x, words, …) {panel=64, unit=32}

A panel is one stream of memory: with one row of x, a thread reads it from end to end. The units of
a word are what the target's instructions multiply (cost/packed_weights.py). In: a Graph. Out: a
Graph. A stage of the CPU back end; weights that are no constants stay rows.
"""

from __future__ import annotations

from dataclasses import replace

from ingot.cost.packed_weights import digits_of_x, panel_columns, unit_bits
from ingot.graph.ir import Graph, Node, Value, make_attrs
from ingot.graph.store import ConstantStore
from ingot.ops.packed_codes import pack_panels, param_panels
from ingot.passes.edit import Editor, map_subgraphs
from ingot.support import options
from ingot.target import Target


def pack_weights(graph: Graph, store: ConstantStore, target: Target) -> Graph:
    edit = Editor(graph, store)
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: pack_weights(g, store, target))
        edit.g.origin = node.origin
        if node.op == "matmul_packed" and not node.attr("unit", 0):
            node = _packed(edit, node, target)
        edit.keep(node)
    return edit.finish()


def _packed(edit: Editor, node: Node, target: Target) -> Node:
    x, weights, *params = node.inputs
    rows = edit.constant(weights)
    arrays = [edit.constant(p) for p in params if p is not None]
    known = [a for a in arrays if a is not None]
    if rows is None or len(known) != len(arrays):
        return node
    asked = "i8" if options.current().int8_activations else node.attr("activations", "f32")
    bits, is_integer = node.attr("bits"), asked == "i8"
    unit = unit_bits(bits, is_integer, target)
    digits = digits_of_x(unit, is_integer)
    panel = panel_columns(node.attr("columns"), unit, digits, target)
    made: list[Value | None] = [edit.g.constant(pack_panels(rows, bits, panel, unit))]
    made += [edit.g.constant(param_panels(a, panel)) for a in known]
    attrs = make_attrs({**node.attr_map, "activations": asked, "unit": unit, "panel": panel})
    return replace(node, inputs=(x, *made), attrs=attrs)

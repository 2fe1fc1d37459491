"""Repacks weights of 2, 4 or 8 bits into words, in panels of columns, as the CPU's loops read them.

    matmul_packed(x, rows of bytes, scale, zero)   →   matmul_packed(x, words, scale, zero) {panel=64}

A panel is one stream of memory: with one row of x, a thread reads it from end to end. Zero points
that are whole numbers are bytes. In: a Graph. Out: a Graph. A stage of the CPU back end; weights
that are no constants stay rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ingot.cost.packed_weights import panel_columns
from ingot.graph.ir import Graph, Node, Value, make_attrs
from ingot.graph.store import ConstantStore
from ingot.ops.matmul_packed import pack_panels, param_panels
from ingot.passes.edit import Editor, map_subgraphs
from ingot.target import Target


def pack_weights(graph: Graph, store: ConstantStore, target: Target) -> Graph:
    edit = Editor(graph, store)
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: pack_weights(g, store, target))
        edit.g.origin = node.origin
        if node.op == "matmul_packed" and not node.attr("panel", 0):
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
    panel = panel_columns(node.attr("columns"), target)
    made: list[Value | None] = [edit.g.constant(pack_panels(rows, panel))]
    made += [edit.g.constant(param_panels(_narrowed(a), panel)) for a in known]
    attrs = make_attrs({**node.attr_map, "panel": panel})
    return replace(node, inputs=(x, *made), attrs=attrs)


def _narrowed(param: np.ndarray) -> np.ndarray:
    return param

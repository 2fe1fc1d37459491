"""Decomposes transposed convolutions of quantised tensors before these are computed in integers.

    conv_transpose(dequantize(x), dequantize(w))  →  interleave(conv(dequantize(x), …), …)

The convolutions of its phases (ops/conv_transpose.py) then have dequantised operands, and are
contractions of integers; a quantisation after them is hoisted above the interleaving. Others are
decomposed later, with all composite operators. In: a Graph. Out: a Graph. Called by the pipeline.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node
from ingot.graph.opdef import defn
from ingot.graph.store import ConstantStore
from ingot.passes.edit import Editor, map_subgraphs
from ingot.passes.quantised import dequantised, quantised_array
from ingot.support import options


def split_transposed(graph: Graph, store: ConstantStore) -> Graph:
    """Apply the rule above, in all sub-graphs too."""
    if not options.current().has("integers"):
        return graph
    edit = Editor(graph, store)
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: split_transposed(g, store))
        edit.g.origin = node.origin
        if node.op == "conv_transpose" and _is_quantised(edit, node):
            types = [v.tensor for v in node.outputs]
            made = defn(node).decompose(edit.g, node.inputs, types, node.attr_map)
            edit.replace(node, made)
        else:
            edit.keep(node)
    return edit.finish()


def _is_quantised(edit: Editor, node: Node) -> bool:
    """Are both operands dequantised, and the phases known?"""
    x, w = node.inputs[:2]
    pads = node.attr("pads") or ()
    is_known = all(arith.as_int(arith.wrap(p)) is not None for p in pads)
    return is_known and dequantised(edit, x) is not None and quantised_array(edit, w) is not None

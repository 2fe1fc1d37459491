"""Graph → the same graph whose 3 × 3 convolutions take fewer products, where that pays.

    conv(x, w)  →  winograd_conv(x, transformed w)

For strides and dilations of one, one group, constant weights in f32 and sizes that are known, but
for the batch's. winograd_tiles.py says where it pays. Called by the pipeline before choose_layouts;
INGOT_WINOGRAD=0 leaves every convolution as it is.
"""

from __future__ import annotations

import numpy as np

from ingot import dtypes, winograd_tiles
from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node, make_attrs, replace
from ingot.graph.store import ConstantStore
from ingot.ops.winograd import KERNEL, transformed
from ingot.passes.edit import Editor, map_subgraphs
from ingot.support import knobs
from ingot.target import Target
from ingot.winograd_tiles import Conv, Grid


def fast_convs(graph: Graph, store: ConstantStore, target: Target) -> Graph:
    if not knobs.current().winograd or not knobs.current().layouts:
        return graph
    edit = Editor(graph, store)
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: fast_convs(g, store, target))
        edit.g.origin = node.origin
        edit.keep(_faster(edit, node, target) or node)
    return edit.finish()


def _faster(edit: Editor, node: Node, target: Target) -> Node | None:
    sizes = _sizes(node) if node.op == "conv" and _may(node) else None
    weights = edit.constant(node.inputs[1]) if sizes is not None else None
    if sizes is None or weights is None:
        return None
    if not winograd_tiles.pays(sizes, dtypes.f32, target):
        return None
    made = transformed(weights)
    if not np.isfinite(made).all():
        return None  # differences of infinite numbers are none
    return _fast(edit, node, made, winograd_tiles.grid(sizes, dtypes.f32, target))


def _may(conv: Node) -> bool:
    """Is it a 3 × 3 convolution that goes from pixel to pixel, of numbers as wide as its sums?"""
    weights = conv.inputs[1]
    assert weights is not None
    steps = (*(conv.attr("strides", None) or ()), *(conv.attr("dilations", None) or ()))
    taps = [arith.as_int(n) for n in weights.shape[2:]]
    is_plain = all(step == 1 for step in steps) and conv.attr("group", 1) == 1
    return is_plain and taps == [KERNEL, KERNEL] and weights.dtype is dtypes.f32


def _sizes(conv: Node) -> Conv | None:
    """The sizes, if all but the batch's are known."""
    x, (out,) = conv.inputs[0], conv.outputs
    assert x is not None
    batch, *sizes = (arith.as_int(n) for n in (out.shape[0], x.shape[1], *out.shape[1:]))
    known = [n for n in sizes if n is not None]
    return Conv(batch, *known) if len(known) == len(sizes) and 0 not in known else None


def _fast(edit: Editor, conv: Node, weights: np.ndarray, grid: Grid) -> Node:
    x, _, *bias = conv.inputs
    attrs = make_attrs({"pads": conv.attr("pads", None), "grid": (grid.rows, grid.columns)})
    return replace(
        conv, op="winograd_conv", inputs=(x, edit.g.constant(weights), *bias), attrs=attrs
    )

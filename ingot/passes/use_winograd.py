"""Winograd F(2×2, 3×3): replaces 3 × 3 convolutions where the cost model says that it pays.

    conv(x, w)  →  winograd_conv(x, transform_weights(w))

Conditions: strides and dilations are 1, one group, constant f32 weights, and static sizes except
the batch. cost/winograd.py decides where it pays. Called by the pipeline before choose_layouts;
INGOT_OFF=winograd switches it off.
"""

from __future__ import annotations

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.cost import winograd as winograd_cost
from ingot.cost.winograd import ConvShape, Grid
from ingot.graph.ir import Graph, Node, make_attrs, replace
from ingot.graph.store import ConstantStore
from ingot.ops.winograd import KERNEL, transform_weights
from ingot.passes.edit import Editor, map_subgraphs
from ingot.support import options
from ingot.target import Target


def use_winograd(graph: Graph, store: ConstantStore, target: Target) -> Graph:
    if not options.current().has("winograd") or not options.current().has("layouts"):
        return graph
    edit = Editor(graph, store)
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: use_winograd(g, store, target))
        edit.g.origin = node.origin
        edit.keep(_as_winograd(edit, node, target) or node)
    return edit.finish()


def _as_winograd(edit: Editor, node: Node, target: Target) -> Node | None:
    sizes = _sizes(node) if node.op == "conv" and _is_applicable(node) else None
    weights = edit.constant(node.inputs[1]) if sizes is not None else None
    if sizes is None or weights is None:
        return None
    if not winograd_cost.is_profitable(sizes, dtypes.f32, target):
        return None
    made = transform_weights(weights)
    if not np.isfinite(made).all():
        return None  # the transform of infinite weights has NaN
    return _winograd_conv(edit, node, made, winograd_cost.grid(sizes, dtypes.f32, target))


def _is_applicable(conv: Node) -> bool:
    """Is it a 3 × 3 convolution in f32 with unit strides and dilations and one group?"""
    weights = conv.inputs[1]
    assert weights is not None
    steps = (*(conv.attr("strides", None) or ()), *(conv.attr("dilations", None) or ()))
    taps = [arith.as_int(n) for n in weights.shape[2:]]
    is_plain = all(step == 1 for step in steps) and conv.attr("group", 1) == 1
    return is_plain and taps == [KERNEL, KERNEL] and weights.dtype is dtypes.f32


def _sizes(conv: Node) -> ConvShape | None:
    """The sizes, if all but the batch are static."""
    x, (out,) = conv.inputs[0], conv.outputs
    assert x is not None
    batch, *sizes = (arith.as_int(n) for n in (out.shape[0], x.shape[1], *out.shape[1:]))
    known = [n for n in sizes if n is not None]
    return ConvShape(batch, *known) if len(known) == len(sizes) and 0 not in known else None


def _winograd_conv(edit: Editor, conv: Node, weights: np.ndarray, grid: Grid) -> Node:
    x, _, *bias = conv.inputs
    attrs = {"pads": conv.attr("pads", None), "grid": (grid.rows, grid.columns)}
    attrs |= {} if grid.block is None else {"tile_block": grid.block}
    inputs = (x, edit.g.constant(weights), *bias)
    return replace(conv, op="winograd_conv", inputs=inputs, attrs=make_attrs(attrs))

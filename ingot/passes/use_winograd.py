"""Winograd F(2×2, 3×3): replaces 3 × 3 convolutions where the cost model says that it pays.

    conv(x, w)  →  winograd_conv(x, transform_weights(w))

Conditions: strides and dilations are 1, one group, constant weights of f32 or, exactly, of 8 bits,
and static channels. cost/winograd.py decides where it pays; of a dynamic map it takes the likely
size, else one that is assumed, and the code is right for every size. Called by the pipeline before
choose_layouts; INGOT_OFF=winograd switches it off.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.cost import winograd as winograd_cost
from ingot.cost.contraction import ASSUMED_EXTENT
from ingot.cost.winograd import ConvShape, Grid
from ingot.graph.ir import Graph, Node, make_attrs, replace
from ingot.graph.store import ConstantStore
from ingot.ops.winograd import KERNEL, MAX_INTEGER_CHANNELS, transform_weights
from ingot.passes.edit import Editor, map_subgraphs
from ingot.support import options
from ingot.target import Target

Likely = Mapping[str, int | None]  # the likely values of dynamic sizes


def use_winograd(graph: Graph, store: ConstantStore, target: Target) -> Graph:
    if not options.current().has("winograd") or not options.current().has("layouts"):
        return graph
    edit, likely = Editor(graph, store), {s.name: s.likely for s in graph.symbols}
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: use_winograd(g, store, target))
        edit.g.origin = node.origin
        edit.keep(_as_winograd(edit, node, likely, target) or node)
    return edit.finish()


def _as_winograd(edit: Editor, node: Node, likely: Likely, target: Target) -> Node | None:
    sizes = _sizes(node, likely) if node.op == "conv" and _is_applicable(node) else None
    weights = edit.constant(node.inputs[1]) if sizes is not None else None
    if sizes is None or weights is None:
        return None
    dtype = dtypes.from_numpy(weights.dtype)
    if not winograd_cost.is_profitable(sizes, dtype, target):
        return None
    made = transform_weights(weights)
    if not np.isfinite(made).all():
        return None  # the transform of infinite weights has NaN
    return _winograd_conv(edit, node, made, winograd_cost.grid(sizes, dtype, target))


def _is_applicable(conv: Node) -> bool:
    """Is it a 3 × 3 convolution in f32 or of 8 bits with unit strides, dilations and one group?"""
    weights = conv.inputs[1]
    assert weights is not None
    steps = (*(conv.attr("strides", None) or ()), *(conv.attr("dilations", None) or ()))
    taps = [arith.as_int(n) for n in weights.shape[2:]]
    is_plain = all(step == 1 for step in steps) and conv.attr("group", 1) == 1
    is_exact = weights.dtype is dtypes.i8
    channels = arith.as_int(weights.shape[1])
    if is_exact and (channels is None or channels > MAX_INTEGER_CHANNELS):
        return False
    return is_plain and taps == [KERNEL, KERNEL] and (is_exact or weights.dtype is dtypes.f32)


def _sizes(conv: Node, likely: Likely) -> ConvShape | None:
    """The sizes, of a dynamic map the assumed ones; None if the channels are dynamic."""
    x, (out,) = conv.inputs[0], conv.outputs
    assert x is not None
    batch, ins, outs = (arith.as_int(n) for n in (out.shape[0], x.shape[1], out.shape[1]))
    height, width = (_assumed(n, likely) for n in out.shape[2:])
    if not ins or not outs or min(height, width) < 1:
        return None
    is_dynamic = any(arith.as_int(n) is None for n in out.shape[2:])
    return ConvShape(batch, ins, outs, height, width, is_dynamic)


def _assumed(size: arith.Expr, likely: Likely) -> int:
    sizes = {name: likely.get(name) or ASSUMED_EXTENT for name in arith.free_vars(size)}
    return arith.assumed(size, sizes) or 0


def _winograd_conv(edit: Editor, conv: Node, weights: np.ndarray, grid: Grid) -> Node:
    x, _, *bias = conv.inputs
    attrs = {"pads": conv.attr("pads", None)}
    attrs |= {name: why for name, why in conv.attrs if name == "in_float"}
    attrs |= {} if grid.is_dynamic else {"grid": (grid.rows, grid.columns)}
    attrs |= {} if grid.block is None else {"tile_block": grid.block}
    inputs = (x, edit.g.constant(weights), *bias)
    return replace(conv, op="winograd_conv", inputs=inputs, attrs=make_attrs(attrs))

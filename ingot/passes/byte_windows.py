"""Depthwise and grouped convolutions of bytes: by dot products over columns, or exactly in f32.

    conv(x: u8, w: i8 constant, b, fill) {depthwise}   →   window_dot(x, taps of w, b, fill)
    conv(x, w: i8 constant, b, fill) {group > 1}   →   cast(conv(x, w, b, fill) {sums: f32}, i32)

A dot-product instruction sums over neighbouring input channels, of which a depthwise convolution
has one; ops/window_dot.py gives it four columns instead, where the target has VNNI and the channels
fill its vectors. Otherwise: multiplying in i32 takes two instructions where f32 has the FMA, and a
sum of integers below 2²⁴ is exact in f32, in any order. Weights and bias are constants, so that the
bound is known. The copy that pads the map converts it, once for all taps. In: a Graph. Out: a
Graph, in which readers that convert such sums to f32 get them as they are. A stage of the CPU back
end.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.graph.ir import Graph, Node, Value, make_attrs
from ingot.graph.store import ConstantStore
from ingot.ops.conv import window
from ingot.ops.window_dot import taps_of
from ingot.passes.edit import Editor, map_subgraphs
from ingot.target import Target

EXACT = 1 << 24  # integers up to this are exact in f32
COLUMN_DOTS = (("avx512vnni", 16), ("avxvnni", 8))  # schedule/column_dots.py: channels at a time
MAX_COLUMNS = 7  # of a window: more are two groups and more for few taps each; heuristic
STRIDES = ((1, 1), (2, 2))


def byte_windows(graph: Graph, store: ConstantStore, target: Target) -> Graph:
    """Apply the first rule that fits to every grouped convolution."""
    edit = Editor(graph, store)
    whole: dict[str, Value] = {}  # i32 sums → the same as f32
    uses, results = graph.uses(), {v.name for v in graph.outputs}
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: byte_windows(g, store, target))
        edit.g.origin = node.origin
        (x, *_) = node.inputs or (None,)
        if _to_f32(node) and x is not None and x.name in whole:
            edit.replace(node, [whole[x.name]])
        elif not _is_byte_window(node):
            edit.keep(node)
        elif _suits_columns(edit, node, target):
            edit.keep(_by_columns(edit, node))
        elif _largest_sum(edit, node) < EXACT:
            sums = _in_floats(edit, node)
            (out,) = node.outputs
            whole[out.name] = sums
            if out.name in results or not all(map(_to_f32, uses.get(out.name, []))):
                edit.keep(replace(node, op="cast", inputs=(sums,), attrs=(("to", dtypes.i32),)))
        else:
            edit.keep(node)
    return edit.finish()


def _to_f32(node: Node) -> bool:
    return node.op == "cast" and node.attr("to") is dtypes.f32


def _is_byte_window(node: Node) -> bool:
    """A grouped convolution of 8-bit operands."""
    if node.op != "conv" or node.attr("group", 1) == 1:
        return False
    return all(v is not None and v.dtype.is_int and v.dtype.bits == 8 for v in node.inputs[:2])


# --- dot products over columns -----------------------------------------------------------------


def _suits_columns(edit: Editor, conv: Node, target: Target) -> bool:
    x, weights = conv.inputs[:2]
    lanes = next((n for feature, n in COLUMN_DOTS if target.has(feature)), None)
    assert x is not None and weights is not None
    if lanes is None or len(x.shape) != 4 or x.dtype is not dtypes.u8:
        return False
    if weights.dtype is not dtypes.i8 or edit.constant(weights) is None:
        return False
    channels, each, _, columns = weights.tensor.static_shape or (0, 0, 0, 0)
    slide = window(conv.op, conv.attr_map, 2)
    is_static = all(arith.as_int(n) for n in (*x.shape[2:], *conv.outputs[0].shape[2:]))
    is_static &= all(arith.as_int(n) is not None for n in (*slide.begins, *slide.ends))
    is_plain = slide.strides in STRIDES and slide.dilations == (1, 1)
    is_depthwise = each == 1 and channels == conv.attr("group", 1) == arith.as_int(x.shape[1])
    fills = bool(channels) and channels % lanes == 0 and 1 < columns <= MAX_COLUMNS
    return is_static and is_plain and is_depthwise and fills


def _by_columns(edit: Editor, conv: Node) -> Node:
    x, weights, *others = conv.inputs
    array = edit.constant(weights)
    assert array is not None
    slide, space = window(conv.op, conv.attr_map, 2), conv.outputs[0].shape[2:]
    stride = slide.strides[0]
    attrs = make_attrs({
        "pads": tuple(arith.as_int(n) for n in (*slide.begins, *slide.ends)),
        "stride": stride,
        "size": tuple(arith.as_int(n) for n in space),
    })  # fmt: skip
    taps = edit.g.constant(taps_of(array, stride))
    return replace(conv, op="window_dot", inputs=(x, taps, *others), attrs=attrs)


# --- sums in f32 -------------------------------------------------------------------------------


def _largest_sum(edit: Editor, conv: Node) -> int:
    """A bound of every partial sum, with the bias; `EXACT` where the operands are not constant."""
    x, weights, bias = (*conv.inputs, None)[:3]
    assert x is not None
    taps, added = edit.constant(weights), edit.constant(bias)
    if taps is None or (bias is not None and added is None):
        return EXACT
    each = np.abs(taps.astype(np.int64)).reshape(len(taps), -1).sum(1) * _largest(x.dtype)
    total = each if added is None else each + np.abs(added.astype(np.int64))
    return int(np.max(total, initial=0))


def _largest(dtype: DType) -> int:
    return max(-int(dtype.lowest), int(dtype.highest))


def _in_floats(edit: Editor, conv: Node) -> Value:
    x, *others = conv.inputs
    wide = [None if v is None else _widened(edit, v) for v in others[:2]]
    return edit.g.add("conv", [x, *wide, *others[2:]], **conv.attr_map, sums=dtypes.f32)


def _widened(edit: Editor, value: Value) -> Value:
    array = edit.constant(value)
    assert array is not None
    return edit.g.constant(array.astype(np.float32))

"""Computes depthwise and grouped convolutions of bytes in f32, where that is exact.

    conv(x: u8, w: i8 constant, b, fill) {group > 1}   →   cast(conv(x, w, b, fill) {sums: f32}, i32)

A dot-product instruction sums over neighbouring input channels, of which a depthwise convolution
has one. Multiplying in i32 takes two instructions where f32 has the FMA. A sum of integers below
2²⁴ is exact in f32, in any order: the weights and the bias are constants, so that the bound is
known. The copy that pads the map converts it, once for all taps. In: a Graph. Out: a Graph, in
which readers that convert the sums to f32 get them as they are. A stage of the CPU back end.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ingot import dtypes
from ingot.dtypes import DType
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.store import ConstantStore
from ingot.passes.edit import Editor, map_subgraphs

EXACT = 1 << 24  # integers up to this are exact in f32


def float_windows(graph: Graph, store: ConstantStore) -> Graph:
    """Apply the rule to every convolution whose sums are provably small."""
    edit = Editor(graph, store)
    whole: dict[str, Value] = {}  # i32 sums → the same as f32
    uses, results = graph.uses(), {v.name for v in graph.outputs}
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: float_windows(g, store))
        edit.g.origin = node.origin
        (x, *_) = node.inputs or (None,)
        if _to_f32(node) and x is not None and x.name in whole:
            edit.replace(node, [whole[x.name]])
        elif _is_byte_window(node) and _largest_sum(edit, node) < EXACT:
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


def _largest_sum(edit: Editor, conv: Node) -> int:
    """A bound of every partial sum, with the bias; `EXACT` where the operands are not constant."""
    x, weights, bias = (*conv.inputs, None)[:3]
    assert x is not None
    taps = edit.constant(weights)
    if taps is None or (bias is not None and edit.constant(bias) is None):
        return EXACT
    each = np.abs(taps.astype(np.int64)).reshape(len(taps), -1).sum(1) * _largest(x.dtype)
    added = 0 if bias is None else np.abs(edit.constant(bias).astype(np.int64))  # type: ignore[union-attr]
    return int(np.max(each + added, initial=0))


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

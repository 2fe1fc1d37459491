"""Depthwise convolutions between row-major values stay row-major, where that is cheaper.

    relayout(conv(relayout(x), w))   →   conv(x, w)    w depthwise, x and the output row-major

Vector lanes are then along the columns of the map instead of the channels, which saves two
relayouts and wastes the lanes beyond a row's end; cost/depthwise_rows.py compares. Where a
neighbour is channels-last, one relayout remains in any case, and the convolution is channels-last
as its neighbour. In: a node whose operands have layouts. Out: does it stay row-major? Called by
choose_layouts.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.cost.depthwise_rows import MapWindow, is_row_major_cheaper
from ingot.graph.ir import Node, Value
from ingot.graph.layouts import channels_last
from ingot.graph.opdef import Kind, defn
from ingot.graph.types import TensorType
from ingot.ops.conv import window
from ingot.ops.matmul import accumulator
from ingot.ops.views import reshape_as_view
from ingot.passes.edit import Editor, same_shape
from ingot.support.stack import segmented
from ingot.target import Target


class RowMajorDepthwise:
    """The depthwise convolutions of one graph that stay row-major."""

    def __init__(self, edit: Editor, target: Target):
        self.edit, self.target = edit, target
        self._uses, graph = edit.graph.uses(), edit.graph
        self._outputs = {v.name for v in graph.outputs}
        self._given = {v.name for v in graph.inputs}
        self._known: dict[str, bool] = {}

    def keeps(self, node: Node) -> bool:
        """Do the input and all readers of the output want row-major values, and does it pay?
        `node`: with its operands as they are now."""
        x = node.inputs[0] if node.inputs else None
        if x is None or node.op != "conv" or x.tensor.layout is not None:
            return False
        return self._pays(node) and self._is_wanted(node.outputs[0])

    @segmented
    def _is_wanted(self, value: Value) -> bool:
        """Do all readers want the value row-major, directly or further on?"""
        if value.name not in self._known:
            self._known[value.name] = False  # ends the recursion through its readers
            readers = self._uses.get(value.name, [])
            is_read = bool(readers) or value.name in self._outputs
            self._known[value.name] = is_read and all(self._suits(r, value) for r in readers)
        return self._known[value.name]

    def _suits(self, reader: Node, value: Value) -> bool:
        op, out = defn(reader), reader.outputs[0]
        if len(reader.outputs) != 1 or not isinstance(out.type, TensorType):
            return False
        if reader.op == "conv":
            is_input = reader.inputs[0] == value and value not in reader.inputs[1:]
            return is_input and self._pays(reader) and self._is_wanted(out)
        if op.is_view:  # channels-last, it would need a relayout
            stored = TensorType(value.dtype, value.shape, channels_last(value.tensor.rank))
            return reshape_as_view(stored, out.tensor) is None
        if op.kind_of(reader) is not Kind.ELEMENTWISE or not same_shape(value.type, out.type):
            return False
        others = [v for v in reader.inputs if v is not None and v != value]
        is_plain = all(v.name in self._given for v in others if same_shape(v.type, out.type))
        return is_plain and self._is_wanted(out)

    def _pays(self, conv: Node) -> bool:
        x, weights = conv.inputs[:2]
        if x is None or weights is None or len(x.shape) != 4 or len(weights.shape) != 4:
            return False
        channels, outputs = (arith.as_int(n) for n in (x.shape[1], weights.shape[0]))
        slide = _map_window(conv, weights)
        if channels is None or slide is None or not channels == outputs == conv.attr("group", 1):
            return False
        dtype = accumulator(x.dtype)
        if dtype is not x.dtype or channels < self.target.lanes(dtype):
            return False
        return is_row_major_cheaper(slide, channels, dtype, self.target)


def _map_window(conv: Node, weights: Value) -> MapWindow | None:
    """The convolution's window over a map; None where a size is dynamic."""
    out, taps = conv.outputs[0].shape[2:], weights.shape[2:]
    sizes = [n for n in map(arith.as_int, (*out, *taps)) if n is not None]
    if len(sizes) != 4 or min(sizes) < 1:
        return None
    rows, columns, down, across = sizes
    slide = window(conv.op, conv.attr_map, 2)
    steps, gaps = slide.strides, slide.dilations
    return MapWindow((rows, columns), (down, across), (steps[0], steps[1]), (gaps[0], gaps[1]))

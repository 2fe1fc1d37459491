"""Operand layouts: inserts `relayout`s so that a node reads its operands in the preferred layout.
In: a node whose operands have layouts. Out: the node with converted operands; a value is converted
to a layout once for all its readers. Called by choose_layouts.

    conv(x)            x default layout                 → channels last, if that pays
    add(x, y)          x channels last, y default       → y channels last
    add(dequantize(x)) x default layout                 → add(dequantize(x channels last))
    layer_norm(x)      x channels last, other row axis  → default
    reshape(x)         x channels last, axes mixed      → default: the reshape is then a view
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ingot.arith import expr as arith
from ingot.graph.ir import Node, Value
from ingot.graph.layouts import axis_order, channels_last, same_bytes
from ingot.graph.opdef import Kind, defn
from ingot.graph.types import Layout, TensorType
from ingot.graph.verify import bound_symbols
from ingot.ops.views import reshape_as_view
from ingot.passes.dot_operands import dot_of, terms_axis
from ingot.passes.edit import Editor, same_shape, widens
from ingot.target import Target

MIN_REUSE = 96  # uses of an input element from which its relayout pays (heuristic)


class OperandLayouts:
    """The relayouts of one graph."""

    def __init__(self, edit: Editor, target: Target):
        self.edit, self.target = edit, target
        self._relayouts: dict[tuple[str, Layout | None], Value] = {}

    def applied(self, node: Node) -> Node:
        """The node with its operands in their preferred layouts."""
        inputs = [v and self._preferred(node, i, v) for i, v in enumerate(node.inputs)]
        return replace(node, inputs=tuple(inputs)) if tuple(inputs) != node.inputs else node

    def _preferred(self, node: Node, position: int, value: Value) -> Value:
        if bound_symbols(node) or any(True for _ in node.subgraphs):
            return self._relayout(value, None)  # the default: sub-graphs, data-dependent sizes
        op = defn(node)
        if position == 0 and dot_of(node, self.target) is not None:
            return self._relayout(value, _terms_innermost(node, value.tensor))
        if position == 0 and op.channels_last and self._pays_channels_last(node, value.tensor):
            return self._relayout(value, channels_last(value.tensor.rank))
        is_contiguous_reader = op.is_view or _is_row_reduction(node)
        if position == 0 and is_contiguous_reader and not _reads_contiguously(node, value.tensor):
            return self._relayout(value, None)
        if op.kind_of(node) is Kind.ELEMENTWISE and len(node.outputs) == 1:
            return self._matching_others(node, value)
        return value

    def _relayout(self, value: Value, layout: Layout | None) -> Value:
        if value.tensor.layout == layout:
            return value
        key = value.name, layout
        if key not in self._relayouts:
            self._relayouts[key] = self._converted(value, layout)
        return self._relayouts[key]

    def _converted(self, value: Value, layout: Layout | None) -> Value:
        """The value in another layout; what widens 8-bit elements does so after their relayout."""
        node, g = self.edit.producer(value), self.edit.g
        if node is None or not widens(node) or node.inputs[0] is None:
            axes = None if layout is None else layout.axes
            return g.add("relayout", [value], name=value.name, axes=axes)
        inputs = [self._relayout(node.inputs[0], layout), *node.inputs[1:]]
        type = replace(value.tensor, layout=layout)
        return g.raw(node.op, inputs, node.attr_map, [type], [value.name])[0]

    def _matching_others(self, node: Node, value: Value) -> Value:
        """Give all operands of the output's shape the first non-default layout among them."""
        out = node.outputs[0].type
        full = [v for v in node.inputs if v is not None and same_shape(v.type, out)]
        layout = next((v.tensor.layout for v in full if v.tensor.layout is not None), None)
        if layout is None or value not in full or same_bytes(value.tensor, layout):
            return value
        return self._relayout(value, layout)

    def _pays_channels_last(self, conv: Node, x: TensorType) -> bool:
        """Does a relayout of the input pay? Yes for a padded convolution, which copies its input
        anyway, and for a grouped one, which reads channels as vectors. Otherwise if each element
        is reused for many outputs."""
        channels = arith.as_int(x.shape[1])
        if x.layout is not None or channels is None:
            return False
        if channels < self.target.lanes(x.dtype):
            return False
        is_padded = any(not arith.is_const(pad, 0) for pad in conv.attr("pads") or ())
        if is_padded or conv.attr("group", 1) > 1:
            return True
        outputs = arith.as_int(conv.outputs[0].shape[1])
        taps = arith.as_int(arith.product(list(conv.inputs[1].shape[2:])) if conv.inputs[1] else 1)
        if outputs is None or taps is None:
            return False
        return outputs * taps >= MIN_REUSE * prod(conv.attr("strides") or ())


def _terms_innermost(node: Node, x: TensorType) -> Layout | None:
    """The layout in which a dot product reads its terms at once: x's own, if it can."""
    axis = x.rank - 1 if node.op == "matmul" else terms_axis(node)
    order = axis_order(x)
    long = [a for a in order or () if a == axis or not arith.is_const(x.shape[a], 1)]
    if long and long[-1] == axis:
        return x.layout
    return None if axis == x.rank - 1 else channels_last(x.rank)


def _is_row_reduction(node: Node) -> bool:
    """Is it a row reduction, which reads each row several times (softmax, layer-norm)?"""
    op = defn(node)
    return op.kind_of(node) is Kind.REDUCTION and not op.keeps_axes


def _reads_contiguously(node: Node, x: TensorType) -> bool:
    """Does the node read contiguous memory: is its row axis innermost, or its reshape a view?"""
    if axis_order(x) is None or (same_bytes(x, None) and not defn(node).is_view):
        return True
    if defn(node).is_view:
        return reshape_as_view(x, node.outputs[0].tensor) is not None
    axis = node.attr("axis", -1)
    return x.layout is not None and axis % x.rank == x.layout.axes[-1][0]

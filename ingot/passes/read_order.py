"""Operands in the order in which a node reads them fastest: explicit `relayout`s where they lie in
another. In: a node whose operands have layouts. Out: the node reading converted ones, each value
converted once for all its readers. Called by choose_layouts.

    conv(x)            x plain                     → channels last, if that pays
    add(x, y)          x channels last, y plain    → y as x
    layer_norm(x)      x channels last, rows else  → plain
    reshape(x)         x channels last, mixed      → plain: the reshape itself moves nothing then
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ingot.arith import expr as arith
from ingot.graph.ir import Node, Value
from ingot.graph.layouts import channels_last, order, same_bytes
from ingot.graph.opdef import Kind, defn
from ingot.graph.types import Layout, TensorType
from ingot.graph.verify import bound_symbols
from ingot.passes.edit import Editor, same_shape
from ingot.passes.reshaped import reshaped
from ingot.target import Target

USES = 96  # of an element, from which on turning it pays


class ReadOrder:
    """One graph's conversions."""

    def __init__(self, edit: Editor, target: Target):
        self.edit, self.target = edit, target
        self._made: dict[tuple[str, Layout | None], Value] = {}

    def applied(self, node: Node) -> Node:
        """The node with its operands as it wants them."""
        inputs = [v and self._wanted(node, i, v) for i, v in enumerate(node.inputs)]
        return replace(node, inputs=tuple(inputs)) if tuple(inputs) != node.inputs else node

    def _wanted(self, node: Node, place: int, value: Value) -> Value:
        if not isinstance(value.type, TensorType):
            return value
        if bound_symbols(node) or any(True for _ in node.subgraphs):
            return self._as(value, None)  # sub-graphs and what finds sizes in data
        op = defn(node)
        if place == 0 and op.channels_last and self._is_worth_turning(node, value.tensor):
            return self._as(value, channels_last(value.tensor.rank))
        if place == 0 and (op.is_view or _makes_rows(node)) and not _reads_well(node, value.tensor):
            return self._as(value, None)
        if op.kind_of(node) is Kind.ELEMENTWISE and len(node.outputs) == 1:
            return self._as_others(node, value)
        return value

    def _as(self, value: Value, layout: Layout | None) -> Value:
        if value.tensor.layout == layout:
            return value
        key = value.name, layout
        if key not in self._made:
            axes = None if layout is None else layout.axes
            self._made[key] = self.edit.g.add("relayout", [value], name=value.name, axes=axes)
        return self._made[key]

    def _as_others(self, node: Node, value: Value) -> Value:
        """Where some operand of the result's shape has a layout, all that do have the first one."""
        out = node.outputs[0].type
        full = [v for v in node.inputs if v is not None and same_shape(v.type, out)]
        layout = next((v.tensor.layout for v in full if v.tensor.layout is not None), None)
        if layout is None or value not in full or same_bytes(value.tensor, layout):
            return value
        return self._as(value, layout)

    def _is_worth_turning(self, conv: Node, x: TensorType) -> bool:
        """One with borders, which are copied anyway; one in groups, whose channels are read as
        vectors. One of neither, where each element is used for many outputs."""
        channels = arith.as_int(x.shape[1])
        if x.layout is not None or arith.as_int(x.numel) is None or channels is None:
            return False
        if channels < self.target.lanes(x.dtype):
            return False
        has_borders = any(not arith.is_const(pad, 0) for pad in conv.attr("pads") or ())
        if has_borders or conv.attr("group", 1) > 1:
            return True
        outputs = arith.as_int(conv.outputs[0].shape[1])
        taps = arith.as_int(arith.product(list(conv.inputs[1].shape[2:])) if conv.inputs[1] else 1)
        if outputs is None or taps is None:
            return False
        return outputs * taps >= USES * prod(conv.attr("strides") or ())


def _makes_rows(node: Node) -> bool:
    """Does it go along an axis of its operand, forth and back, as softmax and layer-norm do?"""
    op = defn(node)
    return op.kind_of(node) is Kind.REDUCTION and not op.keeps_axes


def _reads_well(node: Node, x: TensorType) -> bool:
    """Is what the node takes from one end to the other one stretch of memory?"""
    if order(x) is None or (same_bytes(x, None) and not defn(node).is_view):
        return True
    if defn(node).is_view:
        return reshaped(x, node.outputs[0].tensor) is not None
    axis = node.attr("axis", -1)
    return x.layout is not None and axis % x.rank == x.layout.axes[-1][0]

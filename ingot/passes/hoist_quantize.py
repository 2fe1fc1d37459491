"""Hoists quantisation above the movement of data, which then moves 8-bit elements.

    quantize(reshape(x))          →  reshape(quantize(x))
    quantize(concat(x, y))        →  concat(quantize(x), quantize(y))
    quantize(dequantize(x))       →  x              if scale, zero point and type are equal
    quantize(relu(x))             →  quantize(x)    if nothing below 0 can be stored
    quantize(clip(x, lo, hi))     →  quantize(x)    if nothing outside the bounds can be stored

for a movement that only the quantisation reads. Exact for every x. A quantisation after a
contraction then fuses into its epilogue. In: a Graph whose dequantisations have sunk. Out: a Graph.
Called by the pipeline; INGOT_OFF=sink_dequantize switches it off.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from ingot import dtypes
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.store import ConstantStore
from ingot.graph.verify import bound_symbols
from ingot.ops.quant import QUANTIZE
from ingot.passes.edit import Editor, map_subgraphs
from ingot.passes.quantised import (
    EIGHT_BITS,
    JOINS,
    Dequantised,
    dequantised,
    is_one_element,
    numbers,
    uses_of,
)
from ingot.support import options
from ingot.support.stack import segmented

# of the operators that move elements, those that read all of the operand
MOVES = ("transpose", "reshape", "identity", "reverse_sequence", "expand", "tile")


def hoist_quantize(graph: Graph, store: ConstantStore) -> Graph:
    """Apply the rules above."""
    if not options.current().has("sink_dequantize"):
        return graph
    edit, uses = Editor(graph, store), uses_of(graph)
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: hoist_quantize(g, store))
        edit.g.origin = node.origin
        hoisted = _hoisted(edit, node, uses)
        if hoisted is None:
            edit.keep(node)
        else:
            edit.replace(node, [hoisted])
    return edit.finish()


def _hoisted(edit: Editor, node: Node, uses: Counter[str]) -> Value | None:
    """The quantised value without the quantisation, or with it before what it was after."""
    if node.op != "quantize_linear" or node.attr("dtype") not in EIGHT_BITS:
        return None
    x, scale, zero = (*node.inputs, None)[:3]
    assert x is not None and scale is not None
    is_single = is_one_element(scale.tensor) and (zero is None or is_one_element(zero.tensor))
    if not is_single or scale.dtype is not dtypes.f32:
        return None
    quantiser = _Quantiser(edit, node, scale, zero, uses)
    return quantiser.before(x)


@dataclass(frozen=True)
class _Quantiser:
    """One quantize_linear, per tensor."""

    edit: Editor
    node: Node
    scale: Value
    zero: Value | None
    uses: Counter[str]

    def of(self, x: Value) -> Value:
        """x quantised, as far up as possible."""
        hoisted = self.before(x)
        if hoisted is not None:
            return hoisted
        inputs = [x, self.scale] if self.zero is None else [x, self.scale, self.zero]
        type = replace(x.tensor, dtype=self.node.attr("dtype"))
        attrs = {"dtype": self.node.attr("dtype")}
        return self.edit.g.raw("quantize_linear", inputs, attrs, [type])[0]

    @segmented
    def before(self, x: Value) -> Value | None:
        """The same, if that is not a quantize_linear of x itself."""
        producer = self.edit.producer(x)
        if producer is None:
            return None
        if producer.op == "dequantize_linear":
            grid = dequantised(self.edit, x)
            return grid.x if grid is not None and grid.has_grid_of(self.grid(grid.x)) else None
        if self.uses[x.name] != 1 or len(producer.outputs) != 1 or bound_symbols(producer):
            return None
        first = producer.inputs[0] if producer.inputs else None
        if first is None or first.dtype is not dtypes.f32:
            return None
        if producer.op in MOVES:
            return self._moved(producer, [self.of(first), *producer.inputs[1:]])
        if producer.op in JOINS:
            return self._moved(producer, [v and self.of(v) for v in producer.inputs])
        if producer.op == "pad":
            return self._padded(producer, first)
        return self.of(first) if self._is_bound(producer) else None

    def grid(self, like: Value) -> Dequantised:
        """The scale and zero point as those of a dequantisation."""
        stored = Value(like.name, replace(like.tensor, dtype=self.node.attr("dtype")))
        pair = numbers(self.edit, self.scale, self.zero)
        return Dequantised(stored, self.scale, self.zero, *pair)

    def _moved(self, move: Node, inputs: list[Value | None]) -> Value:
        type = replace(move.outputs[0].tensor, dtype=self.node.attr("dtype"))
        name = move.outputs[0].name
        return self.edit.g.raw(move.op, inputs, move.attr_map, [type], [name])[0]

    def _padded(self, pad: Node, x: Value) -> Value | None:
        if pad.attr("mode", "constant") != "constant":
            return self._moved(pad, [self.of(x)])
        value = pad.inputs[1] if len(pad.inputs) > 1 else None
        fill = np.zeros((), np.float32) if value is None else self.edit.constant(value)
        stored = None if fill is None else self.stored(fill)
        if stored is None:
            return None
        return self._moved(pad, [self.of(x), self.edit.g.constant(stored)])

    def stored(self, real: np.ndarray) -> np.ndarray | None:
        """A constant quantised, if scale and zero point are constants."""
        scale, zero = self.edit.constant(self.scale), self.edit.constant(self.zero)
        if scale is None or (self.zero is not None and zero is None):
            return None
        attrs = {"dtype": self.node.attr("dtype")}
        return QUANTIZE.reference([real, scale, zero], attrs)[0]

    def _is_bound(self, node: Node) -> bool:
        """Does it only bound values that the quantisation bounds as much?"""
        dtype = self.node.attr("dtype")
        if node.op == "relu":
            bounds = [np.zeros((), np.float32), None]
        elif node.op == "clip":
            given = [*node.inputs[1:], None, None][:2]
            bounds = [self.edit.constant(v) for v in given]
            if any(v is not None and b is None for v, b in zip(given, bounds)):
                return False
        else:
            return False
        for bound, end in zip(bounds, (dtype.lowest, dtype.highest)):
            stored = None if bound is None else self.stored(bound)
            if bound is not None and (stored is None or not np.all(stored == end)):
                return False
        scale = self.edit.constant(self.scale)
        return scale is not None and bool(np.all(scale > 0)) and node.outputs[0].dtype is dtypes.f32

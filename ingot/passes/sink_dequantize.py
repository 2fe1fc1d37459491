"""Sinks dequantisation below the movement of data, which then moves 8-bit elements.

    transpose(dequantize(x), perm)   →  dequantize(transpose(x, perm))
    concat(dequantize(x), …)         →  dequantize(concat(x, …))    if scales and zeros are equal
    max_pool(dequantize(x))          →  dequantize(max_pool(x))     if the scale is positive
    relu(dequantize(x))              →  dequantize(max(x, zero))    likewise
    pad(dequantize(x), v)            →  dequantize(pad(x, q))       if v is the real number of q

Exact for every x. In: a Graph. Out: a Graph. Called by the pipeline before constants are folded,
so that contractions find dequantised operands; INGOT_OFF=sink_dequantize switches it off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ingot.graph.ir import Graph, Node, Value
from ingot.graph.store import ConstantStore
from ingot.graph.verify import bound_symbols
from ingot.passes.edit import Editor, map_subgraphs
from ingot.passes.quantised import JOINS, MOVES, Dequantised, dequantised
from ingot.support import options


def sink_dequantize(graph: Graph, store: ConstantStore) -> Graph:
    """Apply the rules above, in one forward walk: a sunk dequantisation sinks on."""
    if not options.current().has("sink_dequantize"):
        return graph
    edit = Editor(graph, store)
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: sink_dequantize(g, store))
        edit.g.origin = node.origin
        edit.keep(_sunk(edit, node) or node)
    return edit.finish()


def _sunk(edit: Editor, node: Node) -> Node | None:
    """The dequantisation that replaces a node, after the node on 8-bit elements."""
    rule = _RULES.get(node.op)
    grid = dequantised(edit, node.inputs[0]) if rule is not None and node.inputs else None
    if rule is None or grid is None or len(node.outputs) != 1 or bound_symbols(node):
        return None
    if edit.constant(grid.x) is not None and node.op != "gather":
        return None  # a constant: folded, or the weights of a contraction
    moved = rule(edit, node, grid)
    if moved is None:
        return None
    inputs = (moved, grid.scale) if grid.zero is None else (moved, grid.scale, grid.zero)
    return replace(node, op="dequantize_linear", inputs=inputs, attrs=())


def _on_bytes(edit: Editor, node: Node, inputs: list[Value | None]) -> Value:
    """The node over 8-bit operands, with the sizes that it has."""
    assert inputs[0] is not None
    type = replace(node.outputs[0].tensor, dtype=inputs[0].dtype)
    return edit.g.raw(node.op, inputs, node.attr_map, [type], [node.outputs[0].name])[0]


def _move(edit: Editor, node: Node, grid: Dequantised) -> Value | None:
    return _on_bytes(edit, node, [grid.x, *node.inputs[1:]])


def _join(edit: Editor, node: Node, grid: Dequantised) -> Value | None:
    parts = [dequantised(edit, v) for v in node.inputs]
    if not all(p is not None and p.has_grid_of(grid) for p in parts):
        return None
    return _on_bytes(edit, node, [p.x for p in parts if p is not None])


def _resize(edit: Editor, node: Node, grid: Dequantised) -> Value | None:
    is_move = node.attr("mode") == "nearest" and node.attr("extrapolation") is None
    return _move(edit, node, grid) if is_move else None


def _max_pool(edit: Editor, node: Node, grid: Dequantised) -> Value | None:
    return _move(edit, node, grid) if grid.is_constant else None


def _relu(edit: Editor, node: Node, grid: Dequantised) -> Value | None:
    return edit.g.add("max", [grid.x, _byte(edit, grid, 0.0)]) if grid.is_constant else None


def _clip(edit: Editor, node: Node, grid: Dequantised) -> Value | None:
    """Both bounds are real numbers of 8-bit values, or absent."""
    bounds: list[Value | None] = []
    for value in node.inputs[1:]:
        array = edit.constant(value)
        if value is not None and (array is None or array.size != 1):
            return None
        made = None if array is None else _byte(edit, grid, float(array.reshape(-1)[0]))
        if value is not None and made is None:
            return None
        bounds.append(made)
    return _on_bytes(edit, node, [grid.x, *bounds]) if grid.is_constant else None


def _pad(edit: Editor, node: Node, grid: Dequantised) -> Value | None:
    if node.attr("mode", "constant") != "constant":
        return _move(edit, node, grid)
    value = node.inputs[1] if len(node.inputs) > 1 else None
    array = np.zeros((), np.float32) if value is None else edit.constant(value)
    fill = None if array is None else _byte(edit, grid, float(array))
    return None if fill is None else _on_bytes(edit, node, [grid.x, fill])


def _byte(edit: Editor, grid: Dequantised, real: float) -> Value | None:
    number = grid.stored(real)
    return None if number is None else edit.g.constant(np.array(number, grid.x.dtype.numpy))


Sink = Callable[[Editor, Node, Dequantised], Value | None]
_RULES: dict[str, Sink] = {
    **dict.fromkeys(MOVES, _move),
    **dict.fromkeys(JOINS, _join),
    "resize": _resize,
    "max_pool": _max_pool,
    "relu": _relu,
    "clip": _clip,
    "pad": _pad,
}

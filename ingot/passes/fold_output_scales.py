"""Folds the scale of a quantisation into the scale of the integer contraction before it.

    quantize(clip(cast(total)·s + b, lo, hi), sy, zy)
        →  cast(round(clip(cast(total)·(s/sy) + b/sy, lo/sy, hi/sy)) + zy, 8 bits)
    quantize(f(x), sy, zy)
        →  cast(round(f(x)·(1/sy)) + zy, 8 bits)      for any other f
    quantize(x, 1, zy)
        →  cast(round(x) + zy, 8 bits)

with constant scales, per tensor or per channel; `total` are sums of integers, x are such sums or
dequantised. The first is one multiply-add for each element; bounds that the 8 bits imply are
dropped. The zero point is added after rounding: before it, an odd one would turn ties the other
way. Neither of the first two divides: a result differs by one step where x / sy is within rounding
of a tie. The third is exact, it is what QLinear operators are. Relies on constants being folded.
In: a Graph. Out: a Graph. A stage of back ends; INGOT_OFF=fold_output_scales switches it off.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from ingot import dtypes
from ingot.dtypes import DType
from ingot.graph.ir import Graph, Node, Value, make_attrs
from ingot.graph.opdef import Kind, defn
from ingot.graph.store import ConstantStore
from ingot.passes.edit import Editor, map_subgraphs, same_shape
from ingot.passes.quantised import EIGHT_BITS, Parameters, parameters, uses_of
from ingot.passes.remove_dead_code import remove_dead_code
from ingot.support import options


def fold_output_scales(graph: Graph, store: ConstantStore) -> Graph:
    """Apply the rules above."""
    if not options.current().has("fold_output_scales"):
        return graph
    edit, uses = Editor(graph, store), uses_of(graph)
    computed: set[str] = set()  # values that are computed from 8-bit values or their sums
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: fold_output_scales(g, store))
        edit.g.origin = node.origin
        edit.keep(_folded(edit, node, uses, computed) or node)
        if _is_from_bytes(node, computed):
            computed |= {v.name for v in node.outputs}
    return remove_dead_code(edit.finish(), store)


def _is_from_bytes(node: Node, computed: set[str]) -> bool:
    if _is_integer_sum(node) or node.op == "dequantize_linear":
        return True
    return any(v is not None and v.name in computed for v in node.inputs)


def _is_integer_sum(node: Node | None) -> bool:
    """Is it a contraction of integers? Its sums may be f32, where that is exact."""
    if node is None or not node.inputs or node.inputs[0] is None:
        return False
    return defn(node).kind is Kind.CONTRACTION and node.inputs[0].dtype.is_int


def _folded(edit: Editor, node: Node, uses: Counter[str], computed: set[str]) -> Node | None:
    """The cast that replaces a quantisation."""
    if node.op != "quantize_linear" or node.attr("dtype") not in EIGHT_BITS:
        return None
    (x, *_), grid = node.inputs, parameters(edit, node)
    if grid is None or not grid.is_usual or x is None or x.dtype is not dtypes.f32:
        return None
    if np.all(grid.scale == 1):
        return _rounded(edit, node, x, grid)
    producer = edit.producer(x)
    if x.name not in computed or (producer is not None and producer.op == "dequantize_linear"):
        return None  # of two grids, halves of a step may be common
    chain = _chain(edit, x, uses)
    made = None if chain is None else _one_multiply_add(edit, chain, grid, node.attr("dtype"))
    if made is not None:
        return _rounded(edit, node, made, grid)
    inverse = np.float32(1) / grid.scale
    return _rounded(edit, node, edit.g.add("mul", [x, edit.g.constant(inverse)]), grid)


def _rounded(edit: Editor, node: Node, real: Value, grid: Parameters) -> Node:
    """round(real) + zero in 8 bits."""
    rounded = edit.g.add("round", [real])
    if np.any(grid.zero):
        zero = edit.g.constant(grid.zero.astype(np.float32))
        rounded = edit.g.add("add", [rounded, zero])
    return _stored(edit, node, rounded)


def _stored(edit: Editor, node: Node, value: Value) -> Node:
    attrs = make_attrs({"to": node.attr("dtype"), "mode": "saturate"})
    return replace(node, op="cast", inputs=(value,), attrs=attrs)


@dataclass
class _Chain:
    """min(max(total · scale + shift, low), high): arrays that broadcast to `total`."""

    total: Value
    scale: np.ndarray
    shift: np.ndarray
    low: float = -np.inf
    high: float = np.inf

    @property
    def is_bounded(self) -> bool:
        return np.isfinite(self.low) or np.isfinite(self.high)


def _chain(edit: Editor, x: Value, uses: Counter[str], depth: int = 8) -> _Chain | None:
    """The value as a chain; None if it is none, or if other nodes read a part of it."""
    node = edit.producer(x)
    if node is None or depth == 0 or uses[x.name] != 1:
        return None
    if _is_integer_sum(node):
        return _Chain(x, np.ones((), np.float64), np.zeros((), np.float64))
    if node.op == "cast" and node.inputs[0] is not None:
        is_total = node.inputs[0].dtype is dtypes.i32
        return _Chain(x, np.ones((), np.float64), np.zeros((), np.float64)) if is_total else None
    if node.op in ("mul", "add"):
        return _affine(edit, node, uses, depth)
    if node.op not in ("relu", "clip"):
        return None
    bounds = _bounds(edit, node)
    first = node.inputs[0]
    assert first is not None
    inner = None if bounds is None else _chain(edit, first, uses, depth - 1)
    if inner is None or bounds is None:
        return None
    low, high = bounds
    inner.low = min(max(inner.low, low), high)
    inner.high = min(max(inner.high, low), high)
    return inner


def _affine(edit: Editor, node: Node, uses: Counter[str], depth: int) -> _Chain | None:
    """A chain times a constant, or plus one."""
    for value, other in (node.inputs, node.inputs[::-1]):
        array = edit.constant(other)
        if array is None or value is None or not same_shape(value.type, node.outputs[0].type):
            continue
        inner = _chain(edit, value, uses, depth - 1)
        if inner is None or inner.is_bounded:
            return None
        number = array.astype(np.float64)
        if node.op == "mul":
            inner.scale, inner.shift = inner.scale * number, inner.shift * number
        else:
            inner.shift = inner.shift + number
        return inner
    return None


def _bounds(edit: Editor, node: Node) -> tuple[float, float] | None:
    """The bounds of a relu or clip, if they are numbers."""
    if node.op == "relu":
        return 0.0, np.inf
    found = [-np.inf, np.inf]
    for i, value in enumerate(node.inputs[1:]):
        array = edit.constant(value)
        if value is not None and (array is None or array.size != 1 or np.isnan(array).any()):
            return None
        found[i] = found[i] if array is None else float(array.reshape(-1)[0])
    return found[0], found[1]


def _one_multiply_add(edit: Editor, chain: _Chain, grid: Parameters, dtype: DType) -> Value | None:
    """The chain in units of the output's steps; None if that overflows."""
    with np.errstate(all="ignore"):
        parts = (chain.scale, chain.shift, chain.low, chain.high)
        factor, shift, low, high = (
            np.asarray(a / grid.scale.astype(np.float64), np.float32) for a in parts
        )
    if not (np.all(np.isfinite(factor)) and np.all(np.isfinite(shift))):
        return None
    value = edit.g.add("mul", [chain.total, edit.g.constant(factor)])
    if np.any(shift):
        value = edit.g.add("add", [value, edit.g.constant(shift)])
    bounds = (
        edit.g.constant(low) if np.any(np.rint(low) + grid.zero > dtype.lowest) else None,
        edit.g.constant(high) if np.any(np.rint(high) + grid.zero < dtype.highest) else None,
    )
    return edit.g.add("clip", [value, *bounds]) if any(bounds) else value

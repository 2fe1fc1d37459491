"""Folds batch norms, and other per-channel scales and shifts, into constant weights. Called by the
pipeline before batch norms are decomposed. It computes in f64 and rounds once at the end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node, Value, make_attrs, replace
from ingot.graph.store import ConstantStore
from ingot.passes.edit import Editor, map_subgraphs


@dataclass(frozen=True)
class Affine:
    """y = x * scale + shift, one number of each per channel; None where there is none."""

    x: Value
    scale: np.ndarray | None
    shift: np.ndarray | None


def fold_batch_norm(graph: Graph, store: ConstantStore) -> Graph:
    """batch_norm(conv(x, w, b)) → conv(x, w·s, b·s + t) where the statistics, w and b are constants
    and the convolution has no other use. The same for a mul or add of a per-channel constant, and
    for conv_transpose and matmul (whose shift stays an add)."""
    edit = Editor(graph, store)
    uses = Counter(v.name for n in graph.nodes for v in n.inputs if v is not None)
    uses.update(v.name for v in graph.outputs)
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: fold_batch_norm(g, store))
        edit.g.origin = node.origin
        edit.keep(_folded(edit, node, uses) or node)
    return edit.finish()


def _folded(edit: Editor, node: Node, uses: Counter[str]) -> Node | None:
    """The anchor with the node's affine map folded into its weights, if possible."""
    for operand in (0, 1):
        x = node.inputs[operand] if operand < len(node.inputs) else None
        anchor = edit.producer(x)
        if x is None or anchor is None or uses[x.name] != 1:
            continue
        axis = _channel_axis(edit, anchor, uses)
        affine = None if axis is None else _affine(edit, node, operand, axis)
        folded = None if affine is None else _fold_into(edit, anchor, affine)
        if folded is not None:
            return replace(folded, outputs=node.outputs, origin=node.origin)
    return None


def _channel_axis(edit: Editor, anchor: Node, uses: Counter[str]) -> int | None:
    """The channel axis in the output of a node that can absorb an affine map."""
    if anchor.op in ("conv", "conv_transpose"):
        return 1
    if anchor.op == "matmul" or (anchor.op == "add" and _matmul_and_bias(edit, anchor, uses)):
        return anchor.outputs[0].tensor.rank - 1
    return None


# --- the affine map -----------------------------------------------------------------------------


def _affine(edit: Editor, node: Node, operand: int, axis: int) -> Affine | None:
    x = node.inputs[operand]
    assert x is not None
    if node.op == "batch_norm" and operand == 0 and axis == 1:
        return _normalisation(edit, node, x)
    if node.op not in ("mul", "add") or node.outputs[0].shape != x.shape:
        return None
    vector = _per_channel(edit, node.inputs[1 - operand], x, axis)
    if vector is None:
        return None
    return Affine(x, vector, None) if node.op == "mul" else Affine(x, None, vector)


def _normalisation(edit: Editor, node: Node, x: Value) -> Affine | None:
    arrays = [edit.constant(v) for v in node.inputs[1:5]]
    if any(a is None for a in arrays):
        return None
    scale, bias, mean, variance = (np.asarray(a, dtype=np.float64) for a in arrays)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + node.attr("epsilon"))
    return Affine(x, factor, bias - mean * factor)


def _per_channel(edit: Editor, value: Value | None, x: Value, axis: int) -> np.ndarray | None:
    """A constant as one number per channel, if it is broadcast along the other axes."""
    array, rank = edit.constant(value), x.tensor.rank
    channels = arith.as_int(x.shape[axis])
    if array is None or array.ndim > rank or channels is None or not x.dtype.is_float:
        return None
    aligned = array.reshape((1,) * (rank - array.ndim) + array.shape)
    if any(size != 1 for i, size in enumerate(aligned.shape) if i != axis):
        return None
    return np.broadcast_to(aligned.reshape(-1), (channels,)).astype(np.float64)


# --- the weights --------------------------------------------------------------------------------


def _fold_into(edit: Editor, anchor: Node, affine: Affine) -> Node | None:
    if anchor.op == "add":
        return _fold_into_biased_matmul(edit, anchor, affine)
    if anchor.op == "matmul":
        return _fold_into_matmul(edit, anchor, affine)
    return _fold_into_conv(edit, anchor, affine)


def _fold_into_conv(edit: Editor, conv: Node, affine: Affine) -> Node | None:
    x, w, b = (*conv.inputs, None)[:3]
    weights, bias = edit.constant(w), edit.constant(b)
    if w is None or weights is None or (b is not None and bias is None):
        return None
    old = None if bias is None else bias.astype(np.float64)
    new_bias = _constant(edit, _plus(_times(old, affine.scale), affine.shift), w)
    new_weights = _constant(
        edit, _times(weights.astype(np.float64), _spread(conv, affine, weights)), w
    )
    if new_weights is None or (new_bias is None and (b or affine.shift is not None)):
        return None
    return replace(conv, inputs=(x, new_weights, new_bias))


def _spread(conv: Node, affine: Affine, weights: np.ndarray) -> np.ndarray | None:
    """The scales in the shape of the weights: those of conv are (out, in/group, …), those of
    conv_transpose (in, out/group, …) with the groups along the first axis."""
    if affine.scale is None:
        return None
    tail = (1,) * (weights.ndim - 2)
    if conv.op == "conv":
        return affine.scale.reshape(-1, 1, *tail)
    group = conv.attr("group", 1)
    rows = affine.scale.reshape(group, -1)
    return np.repeat(rows, weights.shape[0] // group, axis=0).reshape(*weights.shape[:2], *tail)


def _fold_into_matmul(edit: Editor, matmul: Node, affine: Affine) -> Node | None:
    """matmul(x, w) * s + t → matmul(x, w * s) + t"""
    x, w = matmul.inputs
    weights = edit.constant(w)
    if w is None or weights is None or affine.scale is None or weights.ndim < 2:
        return None
    new = _constant(edit, weights.astype(np.float64) * affine.scale, w)
    shift = None if affine.shift is None else _constant(edit, affine.shift, w)
    if new is None or (shift is None and affine.shift is not None):
        return None
    if shift is None:
        return replace(matmul, inputs=(x, new))
    return Node("add", (edit.g.add("matmul", [x, new]), shift), (), make_attrs({}))


def _fold_into_biased_matmul(edit: Editor, add: Node, affine: Affine) -> Node | None:
    """(matmul(x, w) + b) * s + t → matmul(x, w * s) + (b * s + t)"""
    found = _matmul_and_bias(edit, add, None)
    if found is None:
        return None
    matmul, bias = found
    shift = _plus(_times(bias, affine.scale), affine.shift)
    if affine.scale is None:
        return _add_to(edit, matmul, shift)
    return _fold_into_matmul(edit, matmul, Affine(affine.x, affine.scale, shift))


def _add_to(edit: Editor, matmul: Node, shift: np.ndarray | None) -> Node | None:
    w = matmul.inputs[1]
    made = None if w is None or shift is None else _constant(edit, shift, w)
    return None if made is None else Node("add", (matmul.outputs[0], made), ())


def _matmul_and_bias(
    edit: Editor, add: Node, uses: Counter[str] | None
) -> tuple[Node, np.ndarray] | None:
    """The matmul and b of add(matmul(x, w), b), where b is a constant per column and, if `uses` is
    given, the matmul has no other use."""
    for operand in (0, 1):
        value, other = add.inputs[operand], add.inputs[1 - operand]
        producer = edit.producer(value)
        if value is None or producer is None or producer.op != "matmul":
            continue
        bias = _per_channel(edit, other, value, value.tensor.rank - 1)
        alone = uses is None or uses[value.name] <= 1
        if bias is not None and alone and value.shape == add.outputs[0].shape:
            return producer, bias
    return None


def _times(a: np.ndarray | None, b: np.ndarray | None) -> np.ndarray | None:
    return a if a is None or b is None else a * b


def _plus(a: np.ndarray | None, b: np.ndarray | None) -> np.ndarray | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b


def _constant(edit: Editor, array: np.ndarray | None, like: Value) -> Value | None:
    """A constant of `like`'s element type; None if a value overflows it."""
    if array is None:
        return None
    with np.errstate(all="ignore"):
        rounded = array.astype(like.dtype.numpy)
    fits = np.all(np.isfinite(rounded.astype(np.float64)))
    return edit.g.constant(rounded) if fits and like.dtype.is_float else None

"""Contractions of quantised tensors in integers: the canonical form of matmul and conv.

    conv(dequantize(x, sx, zx), dequantize(w, sw, zw), b)
        →  cast(conv(x, w - zw, b / (sx·sw) - zx·Σw, fill=zx): i32, f32) · (sx·sw)
    matmul(dequantize(x, sx, zx), dequantize(w, sw, zw))
        →  cast(matmul(x, w - zw) - zx·Σw, f32) · (sx·sw)

for an 8-bit x, per tensor, or per channel where each group of a convolution reads one scale, and a
constant 8-bit w, per tensor or per output channel. Centred weights are i8; those that do not fit
are shifted (passes/integer_sums.py). What follows, a bias in
f32 or a quantisation, stays and fuses. A contraction of quantised operands that stays in float has
the reason in its attribute `in_float`, for the report. In: a Graph whose dequantisations have sunk
(sink_dequantize.py). Out: a Graph. Called by the pipeline; INGOT_OFF=integers switches it off.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node, Value, make_attrs, replace
from ingot.graph.store import ConstantStore
from ingot.passes.edit import Editor, map_subgraphs
from ingot.passes.integer_sums import Weights, as_weights, integer_conv, integer_matmul
from ingot.passes.quantised import (
    EIGHT_BITS,
    SCALES,
    QuantisedArray,
    along_axis,
    dequantised,
    parameters,
    quantised_array,
)
from ingot.support import options

OPS = ("conv", "matmul")
BIAS_UNITS = 0.5  # an i32 bias may be off by this many units of the sum, by its scale's rounding


class StaysInFloat(Exception):
    """Why a contraction of quantised operands is not computed in integers."""


def integer_contractions(graph: Graph, store: ConstantStore) -> Graph:
    """Apply the rules above, in all sub-graphs too."""
    if not options.current().has("integers"):
        return graph
    edit = Editor(graph, store)
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: integer_contractions(g, store))
        edit.g.origin = node.origin
        edit.keep(_rewritten(edit, node) if node.op in OPS else node)
    return edit.finish()


def _rewritten(edit: Editor, node: Node) -> Node:
    try:
        found = _operands(edit, node)
        return node if found is None else _in_integers(edit, node, found)
    except StaysInFloat as reason:
        return replace(node, attrs=make_attrs({**node.attr_map, "in_float": str(reason)}))


@dataclass(frozen=True)
class Input:
    """(x - zero) · scale, with the scale of each output channel, or one."""

    x: Value
    zero: Value | None
    scale: np.ndarray


@dataclass(frozen=True)
class Operands:
    input: Input
    weights: Weights
    scale: np.ndarray  # of each output channel, or one


def _operands(edit: Editor, node: Node) -> Operands | None:
    """The quantised operands; None if neither is quantised."""
    x, w = node.inputs[:2]
    if x is None or w is None or x.dtype is not dtypes.f32:
        return None
    right = quantised_array(edit, w)
    left = _input(edit, x) if right is None else _input(edit, x) or _grouped_input(edit, node)
    if left is None or right is None:
        reason = _reason(edit, w, left, right)
        if reason:
            raise StaysInFloat(reason)
        return None
    axis = 0 if node.op == "conv" else right.values.ndim - 1
    size = right.values.shape[axis] if right.values.ndim > 1 else 1
    vectors = [_per_channel(a, right, axis, size) for a in (right.scale, right.zero)]
    if not np.all((left.scale > SCALES[0]) & (left.scale < SCALES[1])):
        raise StaysInFloat("the input's scale is not a constant, or not positive")
    made = as_weights(right, axis, node.attr("group", 1) > 1)
    if made is None:
        raise StaysInFloat("the weights less their zero point do not fit 8 bits")
    return Operands(left, made, vectors[0])


def _input(edit: Editor, x: Value) -> Input | None:
    """An input that is quantised per tensor; its scale is NaN unless it is a constant."""
    found = dequantised(edit, x)
    if found is None:
        return None
    known = found.scale_number if found.is_constant else None
    return Input(found.x, found.zero, np.array(np.nan if known is None else known, np.float32))


def _grouped_input(edit: Editor, conv: Node) -> Input | None:
    """The input of a convolution of which each group reads one scale, and all one zero point."""
    producer, group = edit.producer(conv.inputs[0]), conv.attr("group", 1)
    found = None if producer is None or group == 1 else parameters(edit, producer)
    if producer is None or found is None or producer.op != "dequantize_linear":
        return None
    x, _, zero = (*producer.inputs, None)[:3]
    channels = None if x is None else arith.as_int(x.shape[1])
    if x is None or x.dtype not in EIGHT_BITS or not channels:
        return None
    if np.unique(found.zero).size != 1:
        return None
    scale = along_axis(found.scale, x.tensor.rank, 1, channels)
    if scale is None:
        return None
    each = scale.reshape(group, -1)
    if np.any(each != each[:, :1]):
        return None
    one = None if zero is None else edit.g.constant(found.zero.reshape(-1)[0].astype(x.dtype.numpy))
    outputs = arith.as_int(conv.outputs[0].shape[1])
    return Input(x, one, np.repeat(each[:, 0], (outputs or group) // group))


def _per_channel(array: np.ndarray, w: QuantisedArray, axis: int, size: int) -> np.ndarray:
    found = along_axis(array, w.values.ndim, axis, size)
    if found is None:
        raise StaysInFloat("the weights' scale varies along the sum")
    return found


def _reason(edit: Editor, w: Value, left: Input | None, right: QuantisedArray | None) -> str:
    """Why there is no integer form, if an operand is quantised; else empty."""
    if left is not None and dequantised(edit, w) is not None:
        return "both operands are activations"
    if left is not None:
        return "its weights are not constants of 8 bits"
    if right is not None:
        return "its input is not quantised to 8 bits per tensor"
    return ""


def _in_integers(edit: Editor, node: Node, found: Operands) -> Node:
    source = found.input
    factor = source.scale.astype(np.float32) * found.scale.astype(np.float32)
    _check_range(node, found)
    if node.op == "matmul":
        total = integer_matmul(edit, source.x, source.zero, found.weights)
        return _scaled(edit, node, total, factor, None)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    whole = _integer_bias(edit, bias, factor)
    rest = bias if whole is None else None
    total = integer_conv(edit, node, source.x, source.zero, found.weights, whole)
    return _scaled(edit, node, total, factor, rest)


def _check_range(node: Node, found: Operands) -> None:
    """Exact sums must fit i32: |x - zx| is at most 255."""
    if int(found.weights.most) * 255 >= 1 << 30:
        raise StaysInFloat("its sums may exceed 32 bits")


def _integer_bias(edit: Editor, bias: Value | None, factor: np.ndarray) -> np.ndarray | None:
    """The i32 constant that a bias is the dequantised form of, in units of the sum."""
    found = quantised_array(edit, bias, (dtypes.i32,))
    if bias is None or found is None:
        return None
    values = found.centred.astype(np.float64)
    scale = np.broadcast_to(found.scale, values.shape).astype(np.float64)
    with np.errstate(all="ignore"):
        units = values * (scale / np.broadcast_to(factor, values.shape))
    is_close = np.all(np.abs(units - values) < BIAS_UNITS) and np.all(np.abs(values) < 1 << 30)
    return found.centred if is_close else None


def _scaled(edit: Editor, node: Node, total: Value, factor: np.ndarray, bias: Value | None) -> Node:
    """cast(total, f32) · factor + bias, with the node's output."""
    (out,) = node.outputs
    real = edit.g.add("cast", [total], to=dtypes.f32)
    operands = (real, edit.g.constant(_aligned(factor, node)))
    if bias is None:
        return Node("mul", operands, node.outputs, (), node.origin)
    scaled = edit.g.raw("mul", operands, {}, [out.tensor])[0]
    rank = out.tensor.rank
    shape = (arith.Const(1), bias.shape[0], *(arith.Const(1),) * (rank - 2))
    column = edit.constant(bias)
    added = (
        edit.g.add("reshape", [bias], shape=shape)
        if column is None
        else edit.g.constant(column.reshape(1, -1, *(1,) * (rank - 2)))
    )
    return Node("add", (scaled, added), node.outputs, (), node.origin)


def _aligned(factor: np.ndarray, node: Node) -> np.ndarray:
    """One number per output channel in the shape that broadcasts to the output."""
    if factor.size == 1:
        return factor.reshape(())
    if node.op == "conv":
        return factor.reshape(-1, *(1,) * (node.outputs[0].tensor.rank - 2))
    return factor

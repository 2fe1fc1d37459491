"""Sums of 8-bit products with zero points, as plain integer contractions and their corrections.

    Σ (x - zx)·(w + d)  =  Σ x·w - zx·Σw + d·Σ (x - zx)

w is i8, and d is a shift of each output channel for weights that do not fit i8 once their zero
point is subtracted. zx·Σw is a constant, or, with a zero point computed at run time, its product
with a constant. In: operands. Out: i32 values. Called by integer_contractions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.ir import Node, Value
from ingot.passes.edit import Editor
from ingot.passes.quantised import QuantisedArray


@dataclass(frozen=True)
class Weights:
    """Constant weights: w in i8, and the shift d of each output channel, if there is one."""

    array: np.ndarray
    source: Value | None  # the constant that has this array, if there is one already
    shift: np.ndarray | None
    sums: np.ndarray  # Σw for each output: (O,) of conv, the product's shape with one row of matmul
    most: int  # Σ|w + d| of an output is at most this

    def value(self, edit: Editor) -> Value:
        return edit.g.constant(self.array) if self.source is None else self.source


def as_weights(w: QuantisedArray, axis: int, grouped: bool) -> Weights | None:
    """Quantised weights, less their zero point, as i8 with a shift; None if the range of a channel
    is more than 8 bits, or if a grouped convolution would need a shift."""
    if w.values.dtype == np.int8 and not np.any(w.zero):
        return of_integers(w.values, axis, grouped, w.source)
    return of_integers(w.centred, axis, grouped)


def of_integers(
    centred: np.ndarray, axis: int, grouped: bool, source: Value | None = None
) -> Weights | None:
    """The same of integers; `source` is the constant of i8 that they are, if they are one."""
    if centred.size == 0:
        return None
    i8 = dtypes.i8
    if centred.dtype == np.int8:
        return _weights(centred, source, None, axis)
    if centred.min() >= i8.lowest and centred.max() <= i8.highest:
        return _weights(centred.astype(np.int8), None, None, axis)
    over = tuple(i for i in range(centred.ndim) if i != axis % centred.ndim)
    low, high = centred.min(axis=over, keepdims=True), centred.max(axis=over, keepdims=True)
    if grouped or centred.ndim < 2 or np.any(high.astype(np.int64) - low > 255):
        return None
    shift = np.where(low < i8.lowest, low - i8.lowest, np.maximum(high - i8.highest, 0))
    small = (centred - shift).astype(np.int8)
    return _weights(small, None, shift.reshape(-1).astype(np.int32), axis)


def _weights(
    array: np.ndarray, source: Value | None, shift: np.ndarray | None, axis: int
) -> Weights:
    is_conv = axis == 0 and array.ndim > 2
    over = tuple(range(1, array.ndim)) if is_conv else (max(array.ndim - 2, 0),)
    sums = array.sum(axis=over, keepdims=not is_conv and array.ndim > 2, dtype=np.int32)
    terms = math.prod(array.shape[i] for i in over)
    most = 0 if shift is None else int(np.abs(shift).max())
    return Weights(array, source, shift, np.asarray(sums), terms * (128 + most))


def integer_matmul(edit: Editor, x: Value, zero: Value | None, w: Weights) -> Value:
    """Σ (x - zero)·(w + d) over the last axis of x."""
    total = edit.g.add("matmul", [x, w.value(edit)])
    total = _less(edit, total, _correction(edit, zero, w.sums))
    if w.shift is None:
        return total
    rows = edit.g.add(
        "reduce_sum", [_centred(edit, x, zero)], axes=(-1,), keepdims=w.array.ndim > 1
    )
    return edit.g.add("add", [total, edit.g.add("mul", [rows, edit.g.constant(w.shift)])])


def integer_conv(
    edit: Editor, conv: Node, x: Value, zero: Value | None, w: Weights, bias: np.ndarray | None
) -> Value:
    """The convolution of (x - zero) with (w + d), plus a bias in i32. The padding is `zero`."""
    number = _number(edit, zero)
    start = np.zeros_like(w.sums) if bias is None else bias
    if number is not None:
        start = (start - np.int64(number) * w.sums).astype(np.int32)
    operands = [x, w.value(edit), edit.g.constant(start) if np.any(start) else None]
    if number != 0:
        operands.append(_scalar(edit, zero))
    attrs = {name: v for name, v in conv.attrs if name != "in_float"}
    total = edit.g.add("conv", operands if operands[2:] != [None] else operands[:2], **attrs)
    column = (-1, *(1,) * (x.tensor.rank - 2))
    if number is None:
        total = _less(edit, total, _correction(edit, zero, w.sums.reshape(column)))
    if w.shift is None:
        return total
    area = _window_sums(edit, conv, _centred(edit, x, zero), w.array.shape[2:])
    shift = edit.g.constant(w.shift.reshape(column))
    return edit.g.add("add", [total, edit.g.add("mul", [area, shift])])


def _window_sums(edit: Editor, conv: Node, x: Value, kernel: tuple[int, ...]) -> Value:
    """The sums over each window of all channels: those over the channels come first."""
    sums = edit.g.add("reduce_sum", [x], axes=(1,), keepdims=True)
    is_dense = all(s == 1 for s in conv.attr("strides") or ())
    is_padded = any(not arith.is_const(arith.wrap(p), 0) for p in conv.attr("pads") or ())
    if math.prod(kernel) == 1 and is_dense and not is_padded:
        return sums
    ones = edit.g.constant(np.ones((1, 1, *kernel), np.int32))
    names = ("strides", "pads", "dilations")
    attrs = {name: v for name, v in conv.attrs if name in names}
    return edit.g.add("conv", [sums, ones], **attrs)


def _correction(edit: Editor, zero: Value | None, sums: np.ndarray) -> Value | None:
    """zero · sums; None if it is 0."""
    number = _number(edit, zero)
    if number is None:
        wide = edit.g.add("cast", [_scalar(edit, zero)], to=dtypes.i32)
        return edit.g.add("mul", [wide, edit.g.constant(sums)])
    found = (np.int64(number) * sums).astype(np.int32)
    return edit.g.constant(found) if np.any(found) else None


def _less(edit: Editor, total: Value, correction: Value | None) -> Value:
    return total if correction is None else edit.g.add("sub", [total, correction])


def _centred(edit: Editor, x: Value, zero: Value | None) -> Value:
    """x - zero in i32."""
    wide = edit.g.add("cast", [x], to=dtypes.i32)
    if _number(edit, zero) == 0:
        return wide
    return edit.g.add("sub", [wide, edit.g.add("cast", [_scalar(edit, zero)], to=dtypes.i32)])


def _number(edit: Editor, zero: Value | None) -> int | None:
    """A constant zero point; absent, it is 0."""
    if zero is None:
        return 0
    array = edit.constant(zero)
    return None if array is None else int(array.reshape(-1)[0])


def _scalar(edit: Editor, zero: Value | None) -> Value:
    assert zero is not None
    array = edit.constant(zero)
    if array is not None:
        return edit.g.constant(array.reshape(()))
    return zero if zero.tensor.rank == 0 else edit.g.add("reshape", [zero], shape=())

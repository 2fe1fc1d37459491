"""Depthwise convolution of bytes by dot products over four neighbouring columns.

    y[n, c, h, w] = b[c] + Σ_{r, g, t} x[n, c, h·s + r, 2·(w // E) + 4·g + t] · taps[r, g, w % E, c, t]

with x padded by `fill`. A depthwise convolution has one channel for each output, but several taps:
the machine's dot product of four bytes takes four columns of a row. With a stride of 1 two
neighbouring outputs (E = 2) read the same four columns, each with its taps moved by one and padded
with zeros; with a stride of 2 each output has columns of its own (E = 1). In: x u8 (batch, channels,
rows, columns), `taps` i8 (rows of the window, groups of columns, E, channels, 4), maybe a bias i32
and the padding's value; {pads, stride, size: of the output's rows and columns}. Out: i32.
passes/byte_windows.py makes it. Called through the operator table.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import Attrs, Sample, register, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build, identity
from ingot.loops.ir import Buffer, Expr
from ingot.ops.common import integers, narrow, tensor_type
from ingot.ops.conv import ConvBase, Window, padded_copy

GROUP = 4  # columns of a dot product
STEP = 2  # columns from one group of outputs to the next


def outputs_per_group(stride: int) -> int:
    """E: how many outputs share their columns."""
    return STEP // stride


def taps_of(weights: np.ndarray, stride: int) -> np.ndarray:
    """Weights (channels, 1, rows, columns) → (rows, groups, E, channels, 4), padded with zeros."""
    channels, _, rows, columns = weights.shape
    shared = outputs_per_group(stride)
    groups = -(-(columns + shared - 1) // GROUP)
    made = np.zeros((rows, shared, channels, groups * GROUP), weights.dtype)
    for e in range(shared):
        made[:, e, :, e : e + columns] = np.moveaxis(weights[:, 0], 1, 0)
    split = made.reshape(rows, shared, channels, groups, GROUP)
    return np.ascontiguousarray(np.moveaxis(split, 3, 1))


def columns_read(columns: int, groups: int, stride: int) -> int:
    """How many columns of the padded map a row of outputs reads."""
    last = (columns - 1) // outputs_per_group(stride)
    return last * STEP + groups * GROUP


@register
class WindowDot(ConvBase):
    name = "window_dot"
    family = "window_dot"
    channels_last = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, taps = (tensor_type(self.name, t) for t in inputs[:2])
        bias, fill = (*inputs[2:], None, None)[:2]
        shape = taps.static_shape
        if x.rank != 4 or x.dtype is not dtypes.u8 or taps.dtype is not dtypes.i8:
            raise type_error(self.name, f"expects a map of u8 and taps of i8, got {x} and {taps}")
        shared = outputs_per_group(attrs["stride"])
        fits = shape is not None and len(shape) == 5 and shape[2::2] == (shared, GROUP)
        if not fits or arith.as_int(x.shape[1]) != taps.static_shape[3]:  # type: ignore[index]
            raise type_error(self.name, f"taps {taps} do not fit {x}")
        self.check_bias(
            tensor_type(self.name, bias) if bias else None, x.shape[1], dtypes.i32
        )
        if fill is not None:
            self.check_fill(x, tensor_type(self.name, fill), attrs)
        return [TensorType(dtypes.i32, (*x.shape[:2], *map(arith.wrap, attrs["size"])))]

    def attrs_of_rows(
        self, inputs: Sequence[Type | None], attrs: Attrs, batched: Collection[int], rows: Dim
    ) -> Attrs | None:
        return attrs if set(batched) == {0} else None

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, taps, bias, fill = (*inputs, None, None)[:4]
        assert x is not None and taps is not None
        stride, (rows, columns) = attrs["stride"], attrs["size"]
        slide = _padding(x.shape[2:], taps.shape, attrs)
        pads = [(arith.as_int(lo), arith.as_int(hi)) for lo, hi in zip(slide.begins, slide.ends)]
        value = 0 if fill is None else fill
        padded = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=value).astype(np.int32)  # type: ignore
        shared = outputs_per_group(stride)
        at = np.arange(columns)
        total = np.zeros((*x.shape[:2], rows, columns), np.int32)
        for r, g, t in itertools.product(*map(range, (*taps.shape[:2], GROUP))):
            lines = padded[:, :, r : r + (rows - 1) * stride + 1 : stride]
            weight = taps[r, g, :, :, t].astype(np.int32)[at % shared].T
            total += lines[..., at // shared * STEP + g * GROUP + t] * weight[:, None, :]
        if bias is not None:
            total += bias.reshape(-1, 1, 1)
        return [total]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, taps, bias, fill = (*inputs, None, None)[:4]
        assert x is not None and taps is not None
        stride, shared = attrs["stride"], outputs_per_group(attrs["stride"])
        sizes = [arith.as_int(n) or 0 for n in taps.shape]
        border = ir.value_of(0, x.dtype) if fill is None else fill[()]
        source = padded_copy(b, x, _padding(x.shape[2:], sizes, attrs), border)

        def term(*point: arith.Expr) -> Expr:
            n, c, h, w, r, g, t = point
            column = w // shared * STEP + g * GROUP + t
            value = narrow(source[(n, c, h * stride + r, column)], dtypes.i32)
            return value * narrow(taps[(r, g, w % shared, c, t)], dtypes.i32)

        over = [*sizes[:2], GROUP]
        zero = identity("add", dtypes.i32)
        acc = b.reduce("conv", outputs[0].shape, over, "add", term, init=zero)
        return self.finish(b, acc, bias, outputs[0])

    def samples(self) -> list[Sample]:
        def case(size: tuple[int, int], kernel: int, stride: int, *more: np.ndarray) -> Sample:
            x = integers(1, 16, *size, dtype=dtypes.u8, high=255)
            weights = integers(16, 1, kernel, kernel, dtype=dtypes.i8, low=-128, high=127)
            pads = (kernel // 2,) * 4
            out = tuple((n + 2 * pads[0] - kernel) // stride + 1 for n in size)
            attrs = {"pads": pads, "stride": stride, "size": out}
            return Sample((x, taps_of(weights, stride), *more), attrs)

        bias = integers(16, dtype=dtypes.i32, low=-1000, high=1000)
        return [
            case((6, 8), 3, 1, bias, np.array(131, np.uint8)),
            case((5, 7), 5, 1, bias),
            case((9, 8), 3, 2),
        ]


def _padding(space: Sequence[Dim], taps: Sequence[int], attrs: Attrs) -> Window:
    """The pads, and as many columns after them as the last group reads."""
    top, left, bottom, _ = attrs["pads"]
    needed = columns_read(attrs["size"][1], taps[1], attrs["stride"])
    right = needed - left - (arith.as_int(arith.wrap(space[1])) or 0)
    begins, ends = (top, left), (bottom, max(0, right))
    return Window(
        (1, 1), (1, 1), tuple(map(arith.Const, begins)), tuple(map(arith.Const, ends))
    )

"""Convolution in one to three dimensions, with groups, strides and dilations.

In: x (batch, channels, *space), weights, maybe a bias, maybe the value of the padding (a scalar; 0
where it is absent: a quantised map is padded with its zero point); `pads` is the begins, then the
ends. Integers of 8 bits may differ in sign; their sums are i32. Out: (batch, channels, *space).
Padding is a separate stage, a padded copy of x, so that the contraction loads without masks. With
`sums` = f32 (passes/byte_windows.py) that copy converts a map of bytes, the weights and the bias
are f32, and so is the result. With
`clip_rows` (passes/trim_taps.py) the first spatial axis is not padded: taps on rows outside the map
are no terms of the sum. Called by graph, lower and front ends through the operator table.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.simplify import simplify
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build, identity
from ingot.loops.ir import Buffer, Expr
from ingot.ops.common import (
    floats,
    integers,
    narrow,
    require_same_dtype,
    same_dim,
    tensor_type,
)
from ingot.ops.matmul import accumulator, result_dtype
from ingot.ops.reduce import reduce_over

NumpyIndex = tuple[Any, ...]  # integers and slices


@dataclass(frozen=True)
class Window:
    """The sliding window: strides, dilations and padding, one entry for each spatial axis."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[Dim, ...]
    ends: tuple[Dim, ...]

    @property
    def padded(self) -> bool:
        return not all(arith.is_const(p, 0) for p in (*self.begins, *self.ends))

    def without_rows(self) -> Window:
        """The window without the padding of its first axis."""
        none = arith.Const(0)
        return replace(self, begins=(none, *self.begins[1:]), ends=(none, *self.ends[1:]))


def window(op: str, attrs: Attrs, rank: int) -> Window:
    """The window of the attributes, with defaults, checked against the number of spatial axes."""
    ones = (1,) * rank
    strides, dilations = attrs.get("strides") or ones, attrs.get("dilations") or ones
    pads = attrs.get("pads") or (0,) * (2 * rank)
    if (len(strides), len(dilations), len(pads)) != (rank, rank, 2 * rank):
        raise type_error(op, f"strides, dilations or pads do not fit {rank} spatial axes")
    if any(s < 1 for s in (*strides, *dilations)):
        raise type_error(op, f"strides {strides} and dilations {dilations} must be positive")
    if any((arith.as_int(p) or 0) < 0 for p in pads):
        raise type_error(op, f"pads {pads} must not be negative", "slice first")
    sizes = tuple(arith.wrap(p) for p in pads)
    return Window(tuple(strides), tuple(dilations), sizes[:rank], sizes[rank:])


def out_sizes(op: str, space: Sequence[Dim], kernel: Sequence[Dim], w: Window) -> tuple[Dim, ...]:
    """(size + pads - dilation·(k-1) - 1) // stride + 1 for each axis."""
    rows = zip(space, kernel, w.strides, w.dilations, w.begins, w.ends)
    sizes = tuple(simplify((n + lo + hi - (k - 1) * d - 1) // s + 1) for n, k, s, d, lo, hi in rows)
    if any((number := arith.as_int(size)) is not None and number < 0 for size in sizes):
        raise type_error(op, f"the kernel is larger than the padded input {tuple(space)}")
    return sizes


def inside(index: arith.Expr, size: arith.Expr) -> Expr:
    """0 <= index < size, as a value."""
    value = ir.Index(index)
    low = ir.Compare("ge", value, ir.Lit(0, dtypes.i64))
    return low & ir.Compare("lt", value, ir.Index(size))


def all_of(conditions: Sequence[Expr]) -> Expr:
    result = conditions[0]
    for condition in conditions[1:]:
        result = result & condition
    return result


def padded_copy(
    b: Build, x: Buffer, w: Window, fill: Expr, convert: Callable[[Expr], Expr] | None = None
) -> Buffer:
    """x with its spatial axes (all but the first two) padded by `fill`, each element converted."""
    if not w.padded and convert is None:
        return x
    rows = list(zip(x.shape[2:], w.begins, w.ends))
    shape = (*x.shape[:2], *(n + lo + hi for n, lo, hi in rows))

    def value(*point: arith.Expr) -> Expr:
        at = [i - lo for i, (_, lo, _) in zip(point[2:], rows)]
        needed = [
            inside(i, n)
            for i, (n, lo, hi) in zip(at, rows)
            if not (arith.is_const(lo, 0) and arith.is_const(hi, 0))
        ]
        mask = all_of(needed) if needed else None
        load = ir.Load(x, (*point[:2], *at), mask=mask, other=None if mask is None else fill)
        return load if convert is None else convert(load)

    return b.compute("padded", shape, value)


class ConvBase(OpDef):
    """Type checks and the bias stage, common to all convolutions."""

    kind = Kind.CONTRACTION
    family = "conv"

    def work_per_byte(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> float:
        return max(1, np.asarray(inputs[1]).size)  # multiplications of an output, at most

    def multiply_adds(
        self, inputs: Sequence[Type | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> Dim:
        w = tensor_type(self.name, inputs[1])
        return outputs[0].numel * arith.product(list(w.shape[1:]))

    def attrs_of_rows(
        self, inputs: Sequence[Type | None], attrs: Attrs, batched: Collection[int], rows: Dim
    ) -> Attrs | None:
        return attrs if set(batched) == {0} else None

    def finish(
        self, b: Build, acc: Buffer, bias: Buffer | None, output: TensorType
    ) -> list[Buffer]:
        """Add the bias and cast to the output's type; no stage if neither is needed."""
        if bias is None and acc.dtype is output.dtype:
            return [acc]

        def value(*point: arith.Expr) -> Expr:
            total: Expr = acc[point]
            if bias is not None:
                total = total + narrow(bias[point[1]], acc.dtype)
            return narrow(total, output.dtype)

        return [b.compute("out", acc.shape, value)]

    def operands(
        self, inputs: Sequence[Type | None]
    ) -> tuple[TensorType, TensorType, TensorType | None]:
        x, w = (tensor_type(self.name, t) for t in inputs[:2])
        bias = tensor_type(self.name, inputs[2]) if len(inputs) > 2 and inputs[2] else None
        self.check_types(x, w)
        if not 3 <= x.rank <= 5 or w.rank != x.rank:
            raise type_error(self.name, f"expects 1 to 3 spatial axes, got {x} and weights {w}")
        if any(arith.as_int(d) is None for d in w.shape[2:]):
            raise type_error(self.name, f"the kernel's size must be static, got weights {w}")
        return x, w, bias

    def check_types(self, x: TensorType, w: TensorType) -> None:
        if not all(map(_is_byte, (x, w))):  # i8 with u8 is common
            require_same_dtype(self.name, x, w)

    def check_fill(self, x: TensorType, fill: TensorType, attrs: Attrs) -> None:
        if fill.rank or fill.dtype is not x.dtype:
            raise type_error(self.name, f"the padding's value must be {x.dtype}[], got {fill}")
        if attrs.get("clip_rows", False):
            raise type_error(self.name, "rows are clipped, so that they are not padded by a value")

    def check_bias(self, bias: TensorType | None, channels: Dim, dtype) -> None:
        if bias is None:
            return
        if bias.rank != 1 or not same_dim(bias.shape[0], channels) or bias.dtype is not dtype:
            raise type_error(self.name, f"the bias must be {dtype}[{channels}], got {bias}")


@register
class Conv(ConvBase):
    """y[n, o, p] = b[o] + Σ_{c, t} x[n, group(o)·C + c, p·stride + t·dilation - begin] · w[o, c, t]
    where x outside the map is the padding's value, C is the number of input channels in a group and
    group(o) is the group of output o."""

    name = "conv"
    channels_last = True
    zero_padded = True

    def check_types(self, x: TensorType, w: TensorType) -> None:
        if not _is_widened(x, w):
            super().check_types(x, w)

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, w, bias = self.operands(inputs)
        sums = attrs.get("sums")
        if (sums is not None) != _is_widened(x, w) or sums not in (None, dtypes.f32):
            raise type_error(self.name, f"sums={sums} is for bytes and f32 weights, got {x}, {w}")
        if len(inputs) > 3 and inputs[3] is not None:
            self.check_fill(x, tensor_type(self.name, inputs[3]), attrs)
        group = attrs.get("group", 1)
        if not same_dim(x.shape[1], w.shape[1] * group):
            raise type_error(
                self.name, f"{x.shape[1]} channels do not fit weights {w} in {group} groups"
            )
        if (arith.as_int(w.shape[0]) or 0) % group:
            raise type_error(self.name, f"{w.shape[0]} outputs are not divisible by {group} groups")
        space = out_sizes(self.name, x.shape[2:], w.shape[2:], window(self.name, attrs, x.rank - 2))
        dtype = attrs.get("sums") or result_dtype(x.dtype)
        self.check_bias(bias, w.shape[0], dtype)
        return [TensorType(dtype, (x.shape[0], w.shape[0], *space))]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, w, bias, fill = (*inputs, None, None)[:4]
        assert x is not None and w is not None
        dtype, slide = dtypes.from_numpy(x.dtype), window(self.name, attrs, x.ndim - 2)
        acc, group = _sum_type(dtype, attrs).numpy, attrs.get("group", 1)
        pads = [(arith.as_int(lo), arith.as_int(hi)) for lo, hi in zip(slide.begins, slide.ends)]
        value = 0 if fill is None else fill
        padded = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=value).astype(acc)  # type: ignore
        total = convolve_padded(padded, w.astype(acc), slide.strides, slide.dilations, group)
        if bias is not None:
            total = total + bias.astype(acc).reshape(1, -1, *(1,) * (x.ndim - 2))
        return [
            np.ascontiguousarray(total).astype((attrs.get("sums") or result_dtype(dtype)).numpy)
        ]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, w, bias, fill = (*inputs, None, None)[:4]
        assert x is not None and w is not None
        slide, acc_type = window(self.name, attrs, x.rank - 2), _sum_type(x.dtype, attrs)
        is_clipped = attrs.get("clip_rows", False)
        source = padded_copy(
            b,
            x,
            slide.without_rows() if is_clipped else slide,
            ir.value_of(0, x.dtype) if fill is None else fill[()],
            None if attrs.get("sums") is None else lambda e: narrow(e, acc_type),
        )
        out_per_group = w.shape[0] // attrs.get("group", 1)
        grouped, rank = attrs.get("group", 1) != 1, x.rank - 2

        def term(*point: arith.Expr) -> Expr:
            n, o, *rest = point
            position, (c, *taps) = rest[:rank], rest[rank:]
            channel = o // out_per_group * w.shape[1] + c if grouped else c
            terms = zip(position, taps, slide.strides, slide.dilations)
            at = [p * s + t * d for p, t, s, d in terms]
            weight = narrow(w[(o, c, *taps)], acc_type)
            if not is_clipped:
                return narrow(source[(n, channel, *at)], acc_type) * weight
            row = at[0] - slide.begins[0]
            is_row = inside(row, x.shape[2])  # else it is a row of the padding
            load = ir.Load(
                source, (n, channel, row, *at[1:]), mask=is_row, other=ir.value_of(0, x.dtype)
            )
            return ir.Select(is_row, narrow(load, acc_type) * weight, ir.value_of(0, acc_type))

        over = list(w.shape[1:])
        zero = identity("add", acc_type)
        acc = reduce_over(b, "conv", outputs[0].shape, over, "add", term, zero)
        return self.finish(b, acc, bias, outputs[0])

    def samples(self) -> list[Sample]:
        def case(x, w, bias=None, **attrs) -> Sample:
            loose = 1e-2 if x.dtype.itemsize == 2 else 1e-5
            return Sample((x, w, bias), attrs, rtol=loose, atol=loose)

        half = dtypes.f16
        return [
            case(floats(1, 3, 5, 7), floats(4, 3, 3, 3), floats(4), pads=(1, 1, 1, 1)),
            case(floats(2, 4, 7, 6), floats(6, 2, 3, 2), group=2, strides=(2, 1)),
            case(floats(1, 4, 6, 6), floats(4, 1, 3, 3), floats(4), group=4, pads=(0, 1, 2, 0)),
            case(
                floats(1, 2, 2, 5), floats(2, 1, 5, 3), group=2, pads=(2, 1, 2, 1), clip_rows=True
            ),
            case(floats(1, 2, 9), floats(3, 2, 3), pads=(2, 1), dilations=(2,), strides=(3,)),
            case(floats(1, 2, 4, 5, 3), floats(3, 2, 2, 3, 1), floats(3), pads=(1, 0, 0, 0, 1, 1)),
            case(floats(1, 1, 1, 1), floats(1, 1, 1, 1), floats(1)),
            case(floats(1, 3, 4, 4), floats(8, 3, 1, 1)),
            case(floats(1, 2, 5, 5, dtype=half), floats(3, 2, 3, 3, dtype=half), pads=(1,) * 4),
            case(integers(1, 2, 4, 4, dtype=dtypes.i32), integers(2, 2, 2, 2, dtype=dtypes.i32)),
            case(
                integers(1, 2, 4, 4, dtype=dtypes.i8, low=-128, high=127),
                integers(2, 2, 3, 3, dtype=dtypes.i8, low=-128, high=127),
                pads=(1, 1, 1, 1),
            ),
            Sample(
                (
                    integers(1, 3, 5, 6, dtype=dtypes.u8, high=255),
                    integers(9, 3, 3, 3, dtype=dtypes.i8, low=-128, high=127),
                    integers(9, dtype=dtypes.i32, low=-1000, high=1000),
                    np.array(131, np.uint8),
                ),
                {"pads": (1, 1, 0, 2), "strides": (2, 1)},
            ),
            Sample(
                (
                    integers(1, 4, 5, 6, dtype=dtypes.u8, high=255),
                    integers(4, 1, 3, 3, low=-128, high=127).astype(np.float32),
                    integers(4, low=-1000, high=1000).astype(np.float32),
                    np.array(131, np.uint8),
                ),
                {"pads": (1, 1, 0, 2), "group": 4, "sums": dtypes.f32},
            ),
            Sample(
                (
                    integers(1, 4, 3, 4, dtype=dtypes.i8, low=-128, high=127),
                    integers(6, 2, 2, 2, low=-128, high=127).astype(np.float32),
                ),
                {"group": 2, "sums": dtypes.f32},
            ),
        ]


def _is_byte(t: TensorType) -> bool:
    return t.dtype.is_int and t.dtype.bits == 8


def _is_widened(x: TensorType, w: TensorType) -> bool:
    """A map of bytes and weights that are f32 already."""
    return _is_byte(x) and w.dtype is dtypes.f32


def _sum_type(dtype: dtypes.DType, attrs: Attrs) -> dtypes.DType:
    """The type of the sums."""
    return attrs.get("sums") or accumulator(dtype)


def convolve_padded(
    x: np.ndarray,
    w: np.ndarray,
    strides: Sequence[int],
    dilations: Sequence[int],
    group: int,
) -> np.ndarray:
    """Convolution of an already padded input, tap by tap."""
    out_channels, kernel = w.shape[0], w.shape[2:]
    rows = list(zip(x.shape[2:], kernel, strides, dilations))
    sizes = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in rows]
    total = np.zeros((x.shape[0], out_channels, *sizes), x.dtype)
    per_out, per_in = out_channels // group, w.shape[1]
    for taps in itertools.product(*map(range, kernel)):
        per_axis = zip(taps, sizes, strides, dilations)
        window = tuple(slice(t * d, t * d + (n - 1) * s + 1, s) for t, n, s, d in per_axis)
        for g in range(group if min(sizes) > 0 else 0):
            ins, outs = slice(g * per_in, (g + 1) * per_in), slice(g * per_out, (g + 1) * per_out)
            source: NumpyIndex = (slice(None), ins, *window)
            weight: NumpyIndex = (outs, slice(None), *taps)
            total[:, outs] += np.moveaxis(np.tensordot(w[weight], x[source], (1, 1)), 0, 1)
    return total

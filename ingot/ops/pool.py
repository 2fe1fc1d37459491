"""Pooling over sliding windows: max, average and Lp, in one to three dimensions.

In: x (batch, channels, *space) and {kernel, strides, pads, dilations, ceil_mode}. Out: one value
for each window. Padding is not materialised: a masked load gives the identity of the reduction.
Global pools are reductions (reduce.py). Called through the operator table.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.simplify import simplify
from ingot.graph.opdef import PYTHON_WORK, Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build, identity
from ingot.loops.ir import Buffer, Expr
from ingot.ops.common import (
    floats,
    integers,
    narrow,
    tensor_types,
    wide_dtype,
    widen,
    widen_array,
)
from ingot.ops.conv import Window, all_of, inside, out_sizes, window
from ingot.ops.reduce import check_floats

Point = Sequence[arith.Expr]


def pooled_sizes(
    op: str, space: Sequence[Dim], kernel: Sequence[int], w: Window, ceil: bool
) -> tuple[Dim, ...]:
    """One size for each axis. Rounding up includes a last partial window, but only if it starts
    inside the input or its left padding."""
    if not ceil:
        return out_sizes(op, space, [arith.Const(k) for k in kernel], w)
    rows = zip(space, kernel, w.strides, w.dilations, w.begins, w.ends)
    return tuple(
        simplify(
            arith.minimum(
                arith.ceildiv(n + lo + hi - d * (k - 1) - 1, s) + 1, arith.ceildiv(n + lo, s)
            )
        )
        for n, k, s, d, lo, hi in rows
    )


class Pool(OpDef):
    """finish(combine over the window of element(x)), with loads masked at the border."""

    keeps_axes = True
    kind = Kind.REDUCTION
    family = "pool"
    combine = "add"
    floats_only = True

    def work_per_byte(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> float:
        return PYTHON_WORK * math.prod(attrs["kernel"])

    def attrs_of_rows(
        self, inputs: Sequence[Type | None], attrs: Attrs, batched: Collection[int], rows: Dim
    ) -> Attrs | None:
        return attrs

    def element(self, x: Expr, attrs: Attrs) -> Expr:
        return x

    def finish(self, acc: Expr, count: Expr, attrs: Attrs) -> Expr:
        return acc

    def numpy(self, values: np.ndarray, count: int, attrs: Attrs) -> np.ndarray:
        """The result for one window: `values` is (batch, channels, elements inside the input)."""
        raise NotImplementedError(self.name)

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (x,) = tensor_types(self.name, inputs, 1)
        if self.floats_only:
            check_floats(self.name, x)
        kernel = attrs["kernel"]
        if x.rank < 3 or len(kernel) != x.rank - 2:
            raise type_error(self.name, f"kernel {tuple(kernel)} does not fit {x}")
        slide, ceil = window(self.name, attrs, x.rank - 2), bool(attrs.get("ceil_mode", False))
        sizes = pooled_sizes(self.name, x.shape[2:], kernel, slide, ceil)
        return [TensorType(x.dtype, (*x.shape[:2], *sizes))]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x = inputs[0]
        assert x is not None
        (type,) = self.infer([TensorType(dtypes.from_numpy(x.dtype), _dims(x.shape))], attrs)
        out = np.zeros(type.static_shape or (), widen_array(x).dtype)
        slide, kernel = window(self.name, attrs, x.ndim - 2), attrs["kernel"]
        for at in itertools.product(*map(range, out.shape[2:])):
            taken: list[list[int]] = []
            count = 1
            for i, n, k, s, d, lo, hi in zip(
                at, x.shape[2:], kernel, slide.strides, slide.dilations, slide.begins, slide.ends
            ):
                indices = [i * s - (arith.as_int(lo) or 0) + t * d for t in range(k)]
                low = -(arith.as_int(lo) or 0) if attrs.get("count_include_pad", False) else 0
                high = n + (arith.as_int(hi) or 0) if attrs.get("count_include_pad", False) else n
                count *= sum(low <= p < high for p in indices)
                taken.append([p for p in indices if 0 <= p < n])
            values = widen_array(x)[np.ix_(*map(range, x.shape[:2]), *taken)]
            to: tuple[Any, ...] = (slice(None), slice(None), *at)
            count_inside = math.prod(values.shape[2:])
            with np.errstate(all="ignore"):
                out[to] = self.numpy(values.reshape(*x.shape[:2], count_inside), count, attrs)
        return [out.astype(x.dtype)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x = inputs[0]
        assert x is not None
        slide, wide = window(self.name, attrs, x.rank - 2), wide_dtype(x.dtype)
        kernel, shape = clipped_kernel(x, slide, attrs), outputs[0].shape
        start = identity(self.combine, wide)
        raw = identity(self.combine, x.dtype)

        def term(*point: arith.Expr) -> Expr:
            value = window_load(x, point[: x.rank], point[x.rank :], slide, attrs, raw)
            return self.element(widen(value), attrs)

        acc = b.reduce("pool", shape, kernel, self.combine, term, init=start)

        def value(*point: arith.Expr) -> Expr:
            count = window_count(x, point[2:], slide, attrs, wide)
            return narrow(self.finish(acc[point], count, attrs), x.dtype)

        zero = tuple(arith.Const(0) for _ in shape)
        if value(*zero) == acc[zero]:
            return [acc]
        return [b.compute("out", shape, value)]

    def samples(self) -> list[Sample]:
        def case(x: np.ndarray, kernel: tuple[int, ...], **attrs) -> Sample:
            loose = 1e-2 if x.dtype.itemsize == 2 else 1e-5
            return Sample((x,), {"kernel": kernel, **attrs}, rtol=loose, atol=loose)

        return [
            case(floats(1, 3, 6, 7), (3, 2), strides=(2, 2)),
            case(floats(2, 2, 5, 5), (3, 3), strides=(2, 2), pads=(1, 0, 1, 2)),
            case(floats(1, 1, 7), (3,), dilations=(2,), pads=(1, 1)),
            case(floats(1, 2, 4, 5, 3), (2, 2, 2), strides=(1, 2, 1), pads=(0, 1, 0, 1, 0, 1)),
            case(floats(1, 1, 4, 4), (3, 3), strides=(2, 2), ceil_mode=True),
            case(floats(1, 2, 2, 2), (1, 1), strides=(2, 2), ceil_mode=True, pads=(0, 0, 1, 1)),
            case(floats(1, 1, 5, 6), (2, 3), strides=(3, 3), ceil_mode=True, pads=(1, 1, 1, 1)),
            case(floats(1, 1, 1, 1), (1, 1)),
            case(floats(1, 2, 3, 4), (90, 90), strides=(90, 90), ceil_mode=True),
            case(floats(1, 2, 4, 4, dtype=dtypes.f16), (2, 2), strides=(2, 2)),
        ]


def _dims(shape: Sequence[int]) -> tuple[Dim, ...]:
    return tuple(arith.Const(n) for n in shape)


def needs_guard(attrs: Attrs, slide: Window) -> bool:
    return slide.padded or bool(attrs.get("ceil_mode", False))


def clipped_kernel(x: Buffer, slide: Window, attrs: Attrs) -> list[Dim]:
    """The kernel's sizes, clipped to the taps that can be inside the input: exporters write a
    global pool as a huge kernel in ceil_mode."""
    sizes: list[Dim] = []
    rows = zip(attrs["kernel"], x.shape[2:], slide.begins, slide.dilations)
    for k, n, begin, step in rows:
        reach = arith.as_int((n + begin - 1) // step + 1)
        sizes.append(arith.Const(k if reach is None else max(1, min(k, reach))))
    return sizes


def window_load(
    x: Buffer, point: Point, taps: Point, slide: Window, attrs: Attrs, fill: Expr
) -> ir.Load:
    """Element `taps` of the window of output `point`; `fill` if it is outside the input."""
    rows = zip(point[2:], taps, slide.strides, slide.dilations, slide.begins)
    at = [p * s + t * d - lo for p, t, s, d, lo in rows]
    if not needs_guard(attrs, slide):
        return x[(*point[:2], *at)]
    mask = all_of([inside(i, n) for i, n in zip(at, x.shape[2:])])
    return ir.Load(x, (*point[:2], *at), mask=mask, other=fill)


def window_count(x: Buffer, position: Point, slide: Window, attrs: Attrs, dtype) -> Expr:
    """The divisor of the mean: elements in the input, or in the input and its padding."""
    kernel = attrs["kernel"]
    if not needs_guard(attrs, slide):
        return ir.value_of(int(np.prod(kernel)), dtype)
    with_pads, total = attrs.get("count_include_pad", False), arith.Const(1)
    count: arith.Expr = total
    for i, n, k, s, d, lo, hi in zip(
        position, x.shape[2:], kernel, slide.strides, slide.dilations, slide.begins, slide.ends
    ):
        start = i * s - lo
        low, high = (-lo, n + hi) if with_pads else (arith.Const(0), n)
        first = arith.maximum(0, arith.ceildiv(low - start, d))
        last = arith.minimum(k, arith.ceildiv(high - start, d))
        count = count * (last - first)
    return ir.Cast(ir.Index(count), dtype)


@register
class MaxPool(Pool):
    """NaN propagates. With `indices` a second output holds the linear index of each maximum in all
    of x, row-major (the spatial axes column-major if `storage_order` is 1). Of equal values the
    first counts."""

    name = "max_pool"
    combine = "max"
    floats_only = False

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (y,) = super().infer(inputs, attrs)
        return [y, TensorType(dtypes.i64, y.shape)] if attrs.get("indices", False) else [y]

    def numpy(self, values: np.ndarray, count: int, attrs: Attrs) -> np.ndarray:
        low = values.dtype.type(dtypes.from_numpy(values.dtype).lowest)
        return np.maximum.reduce(values, axis=-1, initial=low)

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        (y,) = super().reference(inputs, {**attrs, "indices": False})
        if not attrs.get("indices", False):
            return [y]
        x, slide = inputs[0], window(self.name, attrs, y.ndim - 2)
        assert x is not None
        indices = np.zeros(y.shape, np.int64)
        for at in np.ndindex(*y.shape):
            best, found = None, (0,) * y.ndim
            for taps in itertools.product(*map(range, attrs["kernel"])):
                rows = zip(at[2:], taps, slide.strides, slide.dilations, slide.begins)
                where = [i * s + t * d - (arith.as_int(lo) or 0) for i, t, s, d, lo in rows]
                if all(0 <= i < n for i, n in zip(where, x.shape[2:])):
                    value = float(x[(*at[:2], *where)])
                    if best is None or value > best or (value != value and best == best):
                        best, found = value, (*at[:2], *where)
            outer = (found[0] * x.shape[1] + found[1]) * int(np.prod(x.shape[2:]))
            inner, order = list(found[2:]), list(x.shape[2:])
            if attrs.get("storage_order", 0):
                inner, order = inner[::-1], order[::-1]
            indices[at] = outer + int(np.ravel_multi_index(inner, order))
        return [y, indices]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        if not attrs.get("indices", False):
            return super().compute(b, inputs, outputs, attrs)
        x = inputs[0]
        assert x is not None
        slide = window(self.name, attrs, x.rank - 2)
        fill, none = identity("max", x.dtype), ir.Lit(-1, dtypes.i64)

        def update(*args) -> list[Expr]:
            point, taps, (best, best_index) = args[: x.rank], args[x.rank : -2], args[-2:]
            load = window_load(x, point, taps, slide, attrs, fill)
            value, index = widen(load), ir.Index(_linear_index(load.indices, x.shape))
            empty = ir.Compare("lt", best_index, ir.Lit(0, dtypes.i64))
            earlier = ir.Compare("lt", index, best_index)
            take = ir.Compare("gt", value, best) | (ir.Compare("eq", value, best) & earlier)
            if value.dtype.is_float:
                nan, best_nan = ir.Unary("isnan", value), ir.Unary("isnan", best)
                take = take | (nan & (~best_nan | earlier))
            take = take | empty
            take = take if load.mask is None else load.mask & take
            return [ir.Select(take, value, best), ir.Select(take, index, best_index)]

        over = clipped_kernel(x, slide, attrs)
        start = [identity("max", wide_dtype(x.dtype)), none]
        best, indices = b.fold(["best", "index"], outputs[0].shape, over, start, update)
        if attrs.get("storage_order", 0):
            row_major = indices
            indices = b.compute(
                "column_index", indices.shape, lambda *p: _column_major(row_major[p], x.shape)
            )
        if best.dtype is not x.dtype:
            wide = best
            best = b.compute("out", best.shape, lambda *p: narrow(wide[p], x.dtype))
        return [best, indices]

    def samples(self) -> list[Sample]:
        nan = floats(1, 1, 4, 4)
        nan[0, 0, 1, 1], nan[0, 0, 3, 3] = np.nan, -np.inf
        attrs = {"kernel": (2, 2), "strides": (2, 2)}
        small = integers(1, 2, 4, 4, dtype=dtypes.i8, low=-128, high=127)
        ties = integers(2, 2, 5, 6, dtype=dtypes.i8, low=0, high=2)
        where = {"kernel": (3, 2), "strides": (2, 1), "pads": (1, 0, 1, 1), "indices": True}
        return [
            *super().samples(),
            Sample((nan,), attrs),
            Sample((small,), {**attrs, "pads": (1, 0, 0, 1)}),
            Sample((nan,), {**attrs, "indices": True}),
            Sample((ties,), where),
            Sample((floats(1, 2, 5, 6, dtype=dtypes.f16),), {**where, "storage_order": 1}),
        ]


def _linear_index(point: Point, shape: Sequence[Dim]) -> arith.Expr:
    """The row-major linear index of `point`."""
    total: arith.Expr = arith.Const(0)
    for index, size in zip(point, shape):
        total = total * size + index
    return total


def _column_major(index: Expr, shape: Sequence[Dim]) -> Expr:
    """A row-major linear index of x, converted to column-major spatial axes."""
    rest = ir.index_of(index)
    inner = arith.product(list(shape[2:]))
    outer, rest = rest // inner * inner, rest % inner
    sizes, indices = list(shape[2:]), []
    for size in reversed(sizes):
        indices.append(rest % size)
        rest = rest // size
    return ir.Index(outer + _linear_index(indices, list(reversed(sizes))))


@register
class AvgPool(Pool):
    """The mean of the window's elements; padding counts as zeros if `count_include_pad`."""

    name = "avg_pool"

    def finish(self, acc: Expr, count: Expr, attrs: Attrs) -> Expr:
        return acc / count

    def numpy(self, values: np.ndarray, count: int, attrs: Attrs) -> np.ndarray:
        total = np.add.reduce(values, axis=-1, dtype=values.dtype)
        return np.true_divide(total, values.dtype.type(count))

    def samples(self) -> list[Sample]:
        plain = super().samples()
        with_pads = [
            Sample(s.inputs, {**s.attrs, "count_include_pad": True}, s.rtol, s.atol) for s in plain
        ]
        return plain + with_pads


@register
class LpPool(Pool):
    """(Σ |x|^p)^(1/p) over the window, {p}."""

    name = "lp_pool"

    def element(self, x: Expr, attrs: Attrs) -> Expr:
        size = ir.Unary("abs", x)
        match attrs.get("p", 2):
            case 1:
                return size
            case 2:
                return x * x
            case p:
                return ir.Math("pow", (size, ir.value_of(float(p), x.dtype)))

    def finish(self, acc: Expr, count: Expr, attrs: Attrs) -> Expr:
        match attrs.get("p", 2):
            case 1:
                return acc
            case 2:
                return ir.Unary("sqrt", acc)
            case p:
                return ir.Math("pow", (acc, ir.value_of(1.0 / p, acc.dtype)))

    def numpy(self, values: np.ndarray, count: int, attrs: Attrs) -> np.ndarray:
        p = attrs.get("p", 2)
        powers = np.abs(values) ** values.dtype.type(p)
        return np.add.reduce(powers, axis=-1, dtype=values.dtype) ** values.dtype.type(1.0 / p)

    def samples(self) -> list[Sample]:
        plain = super().samples()
        return [
            Sample(s.inputs, {**s.attrs, "p": p}, max(s.rtol, 1e-4), s.atol)
            for s, p in zip(plain, itertools.cycle((2, 1, 3)))
        ]

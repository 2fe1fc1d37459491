"""Converters of pooling: average, maximum, and adaptive ones.

In: x (batch, channels, *space) or without a batch. Out: nodes of ops/pool.py; adaptive windows of
unequal sizes are gathers and reductions. Called by the importer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import reshape, tidy
from ingot.frontends.torch.common import cast, known_int, numbers_for, transposed, widened
from ingot.frontends.torch.movement import at_index
from ingot.frontends.torch.registry import Converter, Importer, TorchNode, aten
from ingot.frontends.torch.terms import Term, where
from ingot.graph.ir import Value

Numbers = int | Sequence[int]


def batched(ctx: Importer, x: Value, axes: int) -> Value:
    """x with a batch axis and channels."""
    missing = axes + 2 - x.tensor.rank
    return reshape(ctx, x, (*(1,) * missing, *x.shape)) if missing else x


def window_of(
    axes: int, kernel: Numbers, stride: Any, padding: Numbers, dilation: Numbers, ceil: bool
) -> dict[str, Any]:
    """No stride means that of the kernel."""
    sizes = numbers_for(kernel, axes)
    steps = sizes if stride is None or stride == [] else numbers_for(stride, axes)
    pads = numbers_for(padding, axes)
    return {
        "kernel": sizes, "strides": steps, "pads": (*pads, *pads),
        "dilations": numbers_for(dilation, axes), "ceil_mode": ceil,
    }  # fmt: skip


def average(axes: int) -> Converter:
    def convert(
        ctx: Importer, node: TorchNode, x: Value, kernel: Numbers, stride: Any = (),
        padding: Numbers = 0, ceil: bool = False, count_include_pad: bool = True,
        divisor: int | None = None,
    ) -> Value:  # fmt: skip
        attrs = window_of(axes, kernel, stride or None, padding, 1, ceil)
        wide = cast(ctx, batched(ctx, x, axes), x.dtype if x.dtype.is_float else dtypes.f64)
        if divisor is not None:
            made = sums(ctx, node, wide, attrs, divisor)
        else:
            made = ctx.g.add("avg_pool", [wide], **attrs, count_include_pad=count_include_pad)
        return cast(ctx, reshape(ctx, made, node.output.shape), x.dtype)

    return convert


def sums(ctx: Importer, node: TorchNode, x: Value, attrs: dict[str, Any], divisor: int) -> Value:
    """Sums of windows over a divisor: means of whole windows over a map that is padded with zeros,
    also where the last window leaves it."""
    axes = len(attrs["kernel"])
    before, after = [arith.wrap(0)] * (axes + 2), [arith.wrap(0)] * (axes + 2)
    for k in range(axes):
        size, step = attrs["kernel"][k], attrs["strides"][k]
        count = node.output.shape[node.output.rank - axes + k]
        before[2 + k] = arith.wrap(attrs["pads"][k])
        reach = (count - 1) * step + size
        after[2 + k] = tidy(ctx, reach - x.shape[2 + k] - attrs["pads"][k])
    padded = ctx.g.add("pad", [x, None], before=tuple(before), after=tuple(after), mode="constant")
    whole = {"kernel": attrs["kernel"], "strides": attrs["strides"]}
    made = ctx.g.add("avg_pool", [widened(ctx, padded)], **whole, count_include_pad=True)
    return (Term(ctx, made) * (math.prod(attrs["kernel"]) / divisor)).value


for _axes in (1, 2, 3):
    aten(f"aten.avg_pool{_axes}d.default")(average(_axes))


def maximum(axes: int, with_indices: bool) -> Converter:
    def convert(
        ctx: Importer, node: TorchNode, x: Value, kernel: Numbers, stride: Any = (),
        padding: Numbers = 0, dilation: Numbers = 1, ceil: bool = False,
    ) -> Any:  # fmt: skip
        attrs = window_of(axes, kernel, stride or None, padding, dilation, ceil)
        wide = cast(ctx, batched(ctx, x, axes), dtypes.u8 if x.dtype.is_bool else x.dtype)
        found = ctx.g.add_all("max_pool", [wide], **attrs, indices=with_indices)
        values = cast(ctx, reshape(ctx, found[0], node.output.shape), x.dtype)
        if not with_indices:
            return values
        size = tidy(ctx, arith.product(list(wide.shape[2:])))
        of_map = Term(ctx, found[1]).op("mod", size, fmod=False)
        return values, reshape(ctx, of_map.value, node.output.shape)

    return convert


for _axes in (1, 2, 3):
    aten(f"aten.max_pool{_axes}d.default")(maximum(_axes, False))
    aten(f"aten.max_pool{_axes}d_with_indices.default")(maximum(_axes, True))


# --- adaptive windows ---------------------------------------------------------------------------


def adaptive_places(size: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """For each of `count` windows its elements, the last repeated, and which are its own."""
    starts = np.arange(count) * size // count
    ends = -(-(np.arange(count) + 1) * size // count)
    longest = int((ends - starts).max(initial=1))
    places = starts[:, None] + np.arange(longest)
    return np.minimum(places, ends[:, None] - 1), places < ends[:, None]


def spread(ctx: Importer, x: Value, axis: int, places: np.ndarray) -> Value:
    """The axis as windows: (…, window, element, …)."""
    return ctx.g.add("gather", [x, ctx.g.constant(places.astype(np.int64))], axis=axis)


def adaptive_average(axes: int) -> Converter:
    def convert(ctx: Importer, node: TorchNode, x: Value, sizes: Sequence[Any]) -> Value:
        wide, first = widened(ctx, x), x.tensor.rank - axes
        wanted = node.output.shape[first:]
        if all(arith.is_const(n, 1) for n in wanted):
            every = tuple(range(first, x.tensor.rank))
            return ctx.g.add("reduce_mean", [x], axes=every, keepdims=True)
        for k in range(axes):
            wide = mean_of_windows(ctx, node, wide, first + k, wanted[k])
        return cast(ctx, wide, x.dtype)

    return convert


def mean_of_windows(
    ctx: Importer, node: TorchNode, x: Value, axis: int, wanted: arith.Expr
) -> Value:
    """Along one axis; windows of one size are an axis of their own."""
    if tidy(ctx, wanted) == x.shape[axis]:
        return x
    each = tidy(ctx, x.shape[axis] // wanted)
    if arith.is_const(tidy(ctx, x.shape[axis] % wanted), 0):
        shape = (*x.shape[:axis], wanted, each, *x.shape[axis + 1 :])
        return ctx.g.add("reduce_mean", [reshape(ctx, x, shape)], axes=(axis + 1,), keepdims=False)
    size, count = (known_int(ctx, node, n, "a size") for n in (x.shape[axis], wanted))
    places, own = adaptive_places(size, count)
    weights = own / own.sum(1, keepdims=True)
    shape = (*weights.shape, *(1,) * (x.tensor.rank - axis - 1))
    factors = ctx.g.constant(weights.reshape(shape).astype(x.dtype.numpy))
    windows = ctx.g.add("mul", [spread(ctx, x, axis, places), factors])
    return ctx.g.add("reduce_sum", [windows], axes=(axis + 1,), keepdims=False)


for _axes in (1, 2, 3):
    aten(f"aten.adaptive_avg_pool{_axes}d.default")(adaptive_average(_axes))
    if _axes > 1:
        aten(f"aten._adaptive_avg_pool{_axes}d.default")(adaptive_average(_axes))


def adaptive_maximum(axes: int) -> Converter:
    """The windows of all axes side by side, of which the maximum and its place are found."""

    def convert(
        ctx: Importer, node: TorchNode, x: Value, sizes: Sequence[Any]
    ) -> tuple[Value, Value]:
        first = x.tensor.rank - axes
        space = [known_int(ctx, node, d, "a size") for d in x.shape[first:]]
        wanted = [known_int(ctx, node, d, "a size") for d in node.output.shape[first:]]
        rows = [adaptive_places(n, m)[0] for n, m in zip(space, wanted)]
        windows = x
        for k in range(axes):
            windows = spread(ctx, windows, first + 2 * k, rows[k])
        order = [*range(first), *range(first, first + 2 * axes, 2)]
        order += range(first + 1, first + 2 * axes, 2)
        flat = reshape(
            ctx, transposed(ctx, windows, order),
            (*x.shape[:first], *wanted, math.prod(r.shape[1] for r in rows)),
        )  # fmt: skip
        axis = flat.tensor.rank - 1
        values = ctx.g.add("reduce_max", [flat], axes=(axis,), keepdims=False)
        place = ctx.g.add("argmax", [flat], axis=axis, keepdims=True, select_last=False)
        table = ctx.g.add("expand", [ctx.g.constant(linear_places(rows, space))], shape=flat.shape)
        index = ctx.g.add("gather_elements", [table, place], axis=axis)
        return values, reshape(ctx, index, values.shape)

    return convert


def linear_places(rows: Sequence[np.ndarray], space: Sequence[int]) -> np.ndarray:
    """The place in a map of each element of each window: (*windows, elements)."""
    total: Any = np.zeros((1,) * (2 * len(rows)), np.int64)
    for k, places in enumerate(rows):
        shape = [1] * (2 * len(rows))
        shape[k], shape[len(rows) + k] = places.shape
        total = total + places.reshape(shape) * math.prod(space[k + 1 :])
    return np.ascontiguousarray(total.reshape(*total.shape[: len(rows)], -1))


for _axes in (1, 2, 3):
    aten(f"aten.adaptive_max_pool{_axes}d.default")(adaptive_maximum(_axes))


# --- unpooling ----------------------------------------------------------------------------------


def unpool(axes: int) -> Converter:
    """Values at their places in maps of zeros."""

    def convert(ctx: Importer, node: TorchNode, x: Value, places: Value, *window: Any) -> Value:
        lead = tidy(ctx, arith.product(list(x.shape[: x.tensor.rank - axes])))
        size = tidy(ctx, arith.product(list(node.output.shape[x.tensor.rank - axes :])))
        count = tidy(ctx, arith.product(list(x.shape[x.tensor.rank - axes :])))
        zeros = ctx.g.add("fill", [ctx.scalar(0, x.dtype)], shape=(lead, size))
        operands = [zeros, *(reshape(ctx, v, (lead, count)) for v in (places, x))]
        made = ctx.g.add("scatter_elements", operands, axis=1, reduction="none")
        return reshape(ctx, made, node.output.shape)

    return convert


for _axes in (2, 3):
    aten(f"aten.max_unpool{_axes}d.default")(unpool(_axes))


# --- windows at random places -------------------------------------------------------------------


def fractional(axes: int) -> Converter:
    """Windows of one size, whose starts follow from a random number for each map and axis."""

    def convert(
        ctx: Importer, node: TorchNode, x: Value, kernel: Sequence[int], sizes: Sequence[int],
        samples: Value,
    ) -> tuple[Value, Value]:  # fmt: skip
        maps = batched(ctx, x, axes)
        space = [known_int(ctx, node, d, "a size") for d in maps.shape[2:]]
        numbers = reshape(ctx, samples, (*maps.shape[:2], axes))
        windows, place = maps, ctx.g.constant(np.arange(math.prod(space)).reshape(space))
        place = ctx.g.add("expand", [place], shape=maps.shape)
        for k in range(axes):
            # torch gives the numbers in the order of width, height (and depth)
            own = at_index(ctx, numbers, 2, axes - 1 - k if axes == 2 else k)
            at = fractional_places(ctx, own, space[k], kernel[k], sizes[k])
            windows, place = (taken(ctx, v, 2 + k, at) for v in (windows, place))
        cut = [d for n, k in zip(sizes, kernel) for d in (n, k)]
        order = [0, 1, *range(2, 2 + 2 * axes, 2), *range(3, 3 + 2 * axes, 2)]
        shape = (*maps.shape[:2], *sizes, math.prod(kernel))
        windows, place = (
            reshape(ctx, transposed(ctx, reshape(ctx, v, (*maps.shape[:2], *cut)), order), shape)
            for v in (windows, place)
        )
        last = len(shape) - 1
        best = ctx.g.add("argmax", [windows], axis=last, keepdims=True, select_last=False)
        found = (ctx.g.add("gather_elements", [v, best], axis=last) for v in (windows, place))
        values, index = (reshape(ctx, v, node.output.shape) for v in found)
        return values, index

    return convert


def fractional_places(ctx: Importer, numbers: Value, size: int, kernel: int, count: int) -> Value:
    """(batch, channels, windows · kernel): the elements of all windows of an axis."""
    u = Term(ctx, reshape(ctx, cast(ctx, numbers, dtypes.f32), (*numbers.shape, 1)))
    alpha = (size - kernel) / (count - 1) if count > 1 else 0.0
    k = Term(ctx, ctx.g.constant(np.arange(count, dtype=np.float32)))
    starts = ((k + u) * alpha).op("floor") - (u * alpha).op("floor")
    is_last = Term(ctx, ctx.g.constant(np.arange(count) == count - 1))
    starts = where(is_last, starts.lifted(float(size - kernel)), starts).to(dtypes.i64)
    column = Term(ctx, reshape(ctx, starts.value, (*numbers.shape, count, 1)))
    places = column + Term(ctx, ctx.g.constant(np.arange(kernel)))
    return reshape(ctx, places.value, (*numbers.shape, count * kernel))


def taken(ctx: Importer, x: Value, axis: int, at: Value) -> Value:
    """The elements of an axis at indices of each map."""
    shape = [*x.shape]
    shape[axis] = at.shape[-1]
    ones = [at.shape[-1] if k == axis else arith.Const(1) for k in range(2, len(shape))]
    wide = reshape(ctx, at, (*at.shape[:2], *ones))
    index = ctx.g.add("expand", [wide], shape=tuple(shape))
    return ctx.g.add("gather_elements", [x, index], axis=axis)


for _axes in (2, 3):
    aten(f"aten.fractional_max_pool{_axes}d.default")(fractional(_axes))

"""A Slice whose axes or steps are computed at run time: a gather along every axis.

In: a tensor, and starts, ends, axes and steps as values of one length. Out: the slice; its sizes
are symbols that the run binds. Bounds are clamped by the standard's rules:

    step > 0   start and end in 0 … n         size = ceil((end - start) / step)
    step < 0   start in 0 … n-1, end in -1 … n-1, and the other way round

Called by the converter of Slice, where its operands are not constant.
"""

from __future__ import annotations

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import cast, scalar
from ingot.frontends.onnx.registry import Importer
from ingot.frontends.onnx.runtime_axes import RuntimeAxes, bound_sizes, sizes_of
from ingot.graph.ir import Value

ZERO_STEP = "a step is zero"


def runtime_slice(
    ctx: Importer, x: Value, starts: Value, ends: Value, axes: Value | None, steps: Value | None
) -> Value:
    """The slice of x; axes are the first ones and steps are 1 where they are absent."""
    g, rank = ctx.g, x.tensor.rank
    count = arith.as_int(starts.tensor.numel) or 0
    zero, one = (scalar(ctx, n, dtypes.i64) for n in (0, 1))
    named = RuntimeAxes(ctx, axes or g.constant(np.arange(count, dtype=np.int64)), rank)
    extents = sizes_of(ctx, x)
    step = one if steps is None else named.spread(_without_zero(ctx, steps), one)
    start, end = named.spread(starts, zero), named.spread(ends, extents)
    first, size = _span(ctx, extents, start, end, step)
    for axis, length in enumerate(bound_sizes(ctx, size)):
        begin, by = (_element(ctx, v, axis) if v.tensor.rank else v for v in (first, step))
        steps_done = g.add("range", [zero, _size(ctx, length), one], size=length)
        at = g.add("add", [begin, g.add("mul", [by, steps_done])])
        x = g.add("gather", [x, at], axis=axis)
    return x


def _without_zero(ctx: Importer, steps: Value) -> Value:
    g, zero = ctx.g, scalar(ctx, 0, dtypes.i64)
    steps = cast(ctx, steps, dtypes.i64)
    is_zero = g.add("reduce_max", [g.add("eq", [steps, zero])], axes=(0,), keepdims=False)
    return g.add("require", [steps, is_zero], expected=False, reason=ZERO_STEP)


def _span(
    ctx: Importer, extents: Value, start: Value, end: Value, step: Value
) -> tuple[Value, Value]:
    """The first index and the number of elements along each axis."""
    g, zero, one = ctx.g, *(scalar(ctx, n, dtypes.i64) for n in (0, 1))
    is_forward = g.add("gt", [step, zero])
    below = g.add("sub", [extents, one])
    high = g.add("where", [is_forward, extents, below])
    low_end = g.add("where", [is_forward, zero, scalar(ctx, -1, dtypes.i64)])

    def clamped(value: Value, low: Value) -> Value:
        is_negative = g.add("lt", [value, zero])
        from_front = g.add("where", [is_negative, g.add("add", [value, extents]), value])
        return g.add("max", [g.add("min", [from_front, high]), low])

    first, last = clamped(start, zero), clamped(end, low_end)
    gap = g.add("sub", [last, first])
    ahead = g.add("where", [is_forward, gap, g.add("neg", [gap])])
    more = g.add("div", [g.add("sub", [ahead, one]), g.add("abs", [step])])  # no overflow
    size = g.add("where", [g.add("gt", [ahead, zero]), g.add("add", [more, one]), zero])
    return first, g.add("min", [size, extents])  # backward in an empty axis: from 0 to -1


def _element(ctx: Importer, values: Value, index: int) -> Value:
    at = ctx.g.constant(np.array(index, np.int64))
    return ctx.g.add("gather", [values, at], axis=0)


def _size(ctx: Importer, size: arith.Expr) -> Value:
    return ctx.g.add("index_tensor", [], values=(size,), shape=())

"""Shapes that a model computes from data: Reshape and Expand with a shape known only when running.

In: a tensor and its shape as a value, i64[k]. Out: the tensor; its sizes are symbols that the run
binds. Called by the converters, where the shape is an input of the model.
"""

from __future__ import annotations

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import cast, reshape, scalar
from ingot.frontends.onnx.registry import Importer
from ingot.frontends.onnx.runtime_axes import bound_sizes, sizes_of
from ingot.graph.ir import Value

TWO_OPEN = "Reshape: the shape has more than one -1"
DOES_NOT_FIT = "Expand: the shape does not fit the tensor"


def reshaped_at_run_time(ctx: Importer, x: Value, wanted: Value, allow_zero: bool) -> Value:
    """0 copies the input's size (unless allowed), -1 is inferred. The reshape checks the rest."""
    g, zero, one = ctx.g, *(scalar(ctx, n, dtypes.i64) for n in (0, 1))
    count = arith.as_int(wanted.tensor.numel) or 0
    sizes = cast(ctx, wanted, dtypes.i64)
    if not allow_zero:
        kept = (*x.shape, *(arith.Const(0),) * count)[:count]
        copied = g.add("index_tensor", [], values=kept, shape=(count,))
        sizes = g.add("where", [g.add("eq", [sizes, zero]), copied, sizes])
    is_open = g.add("eq", [sizes, scalar(ctx, -1, dtypes.i64)])
    number = g.add("reduce_sum", [cast(ctx, is_open, dtypes.i64)], axes=(0,), keepdims=False)
    is_single = g.add("lt", [number, scalar(ctx, 2, dtypes.i64)])
    sizes = g.add("require", [sizes, is_single], expected=True, reason=TWO_OPEN)
    others = g.add("where", [is_open, one, sizes])
    known = g.add("reduce_prod", [others], axes=(0,), keepdims=False)
    elements = g.add("index_tensor", [], values=(x.tensor.numel,), shape=())
    inferred = g.add("div", [elements, g.add("max", [known, one])])
    found = g.add("where", [is_open, inferred, sizes])
    return g.add("reshape", [x], shape=bound_sizes(ctx, found))


def expanded_at_run_time(ctx: Importer, x: Value, wanted: Value) -> Value:
    """The shape is a value: an axis of another size than 1 keeps it, and the shape must agree."""
    g, count = ctx.g, arith.as_int(wanted.tensor.numel) or 0
    rank = max(count, x.tensor.rank)
    ones, x = (1,) * (rank - count), reshape(ctx, x, (*(1,) * (rank - x.tensor.rank), *x.shape))
    wide = cast(ctx, wanted, dtypes.i64)
    if ones:
        wide = g.add("concat", [g.constant(np.array(ones, np.int64)), wide], axis=0)
    is_one = g.add("eq", [wide, scalar(ctx, 1, dtypes.i64)])
    given = sizes_of(ctx, x)
    was_one = g.add("eq", [given, scalar(ctx, 1, dtypes.i64)])
    fits = g.add("or", [g.add("or", [is_one, was_one]), g.add("eq", [wide, given])])
    flag = g.add("reduce_min", [fits], axes=(0,), keepdims=False)
    sizes = g.add("where", [was_one, wide, given])
    sizes = g.add("require", [sizes, flag], expected=True, reason=DOES_NOT_FIT)
    bound = bound_sizes(ctx, sizes)
    shape = [d if arith.is_const(n, 1) else n for n, d in zip(x.shape, bound)]
    return g.add("expand", [x], shape=tuple(shape))

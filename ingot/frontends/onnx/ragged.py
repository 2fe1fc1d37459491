"""Operations on sequences whose length is known only when the model runs (operands.Ragged).

In: a Ragged, positions as i64 scalars. Out: ordinary operators: an element is a slice of `data`,
its bounds symbols that a `bind` reads from `shapes`; insertion and removal are concats of slices.
A position out of range fails the run. Called by the converters of sequences (sequence.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import HasBuilder, reshape, scalar, tidy
from ingot.frontends.onnx.operands import ABSENT, Ragged, SequenceKind, SequenceList, as_ragged
from ingot.frontends.onnx.runtime_axes import bound_sizes
from ingot.graph.ir import Value
from ingot.graph.types import Dim

OUT_OF_RANGE = "the position is outside the sequence"
OTHER_RANK = "an element of the sequence has another rank than the file declares"
SHAPES_DIFFER = "the elements of the sequence do not fit together"
BAD_SPLIT = "the sizes of the split do not add up to the axis"


def size_value(ctx: HasBuilder, *sizes: Dim) -> Value:
    """Sizes as an i64 vector."""
    return ctx.g.add("index_tensor", [], values=tuple(sizes), shape=(len(sizes),))


def size_scalar(ctx: HasBuilder, size: arith.IntLike) -> Value:
    return ctx.g.add("index_tensor", [], values=(arith.wrap(size),), shape=())


def lengths(ctx: HasBuilder, x: Ragged) -> Value:
    """i64[count]: the number of numbers in each element."""
    g, sizes = ctx.g, x.shapes
    if x.is_mixed:
        one = scalar(ctx, 1, dtypes.i64)
        is_absent = g.add("eq", [sizes, scalar(ctx, ABSENT, dtypes.i64)])
        sizes = g.add("where", [is_absent, one, sizes])
    return g.add("reduce_prod", [sizes], axes=(1,), keepdims=False)


def with_start(ctx: HasBuilder, sizes: Value) -> Value:
    """Prefix sums, from 0 to the sum of all: where each piece begins, and where the last ends."""
    total = ctx.g.add("cumsum", [sizes], axis=0, exclusive=False, reverse=False)
    return ctx.g.add("concat", [ctx.g.constant(np.zeros(1, np.int64)), total], axis=0)


def from_front(ctx: HasBuilder, x: Ragged, position: Value, last: Dim) -> Value:
    """A position, counted from the end if negative, as one in 0 … last."""
    g, zero = ctx.g, scalar(ctx, 0, dtypes.i64)
    count = size_scalar(ctx, x.count)
    is_negative = g.add("lt", [position, zero])
    found = g.add("where", [is_negative, g.add("add", [position, count]), position])
    not_before = g.add("ge", [found, zero])
    inside = g.add("and", [not_before, g.add("le", [found, size_scalar(ctx, last)])])
    return g.add("require", [found, inside], expected=True, reason=OUT_OF_RANGE)


def element(ctx: HasBuilder, x: Ragged, position: Value, rank: int) -> Value:
    """The element at a position; of a mixed sequence, of this rank. The gathers count a negative
    position from the end, and check it."""
    g = ctx.g
    row = g.add("gather", [x.shapes, position], axis=0)
    if x.is_mixed:
        row = _of_rank(ctx, row, rank)
    starts = g.add("cumsum", [lengths(ctx, x)], axis=0, exclusive=True, reverse=False)
    start = g.add("gather", [starts, g.add("reshape", [position], shape=(1,))], axis=0)
    *shape, first = bound_sizes(ctx, g.add("concat", [row, start], axis=0))
    flat = slice_of(ctx, x.data, first, arith.product(list(shape)))
    return reshape(ctx, flat, shape)


def _of_rank(ctx: HasBuilder, row: Value, rank: int) -> Value:
    """The last `rank` sizes of a row; the run fails unless exactly these are present."""
    g = ctx.g
    width = arith.as_int(row.shape[0]) or 0
    is_absent = g.add("eq", [row, scalar(ctx, ABSENT, dtypes.i64)])
    expected = g.constant(np.arange(width) < width - rank)
    fits = g.add("eq", [is_absent, expected])
    flag = g.add("reduce_min", [fits], axes=(0,), keepdims=False)
    row = g.add("require", [row, flag], expected=True, reason=OTHER_RANK)
    return slice_of(ctx, row, arith.Const(width - rank), arith.Const(rank))


def slice_of(ctx: HasBuilder, x: Value, start: Dim, size: Dim) -> Value:
    """`size` rows of x from `start` on."""
    starts = (start, *(arith.Const(0),) * (x.tensor.rank - 1))
    steps = (1,) * x.tensor.rank
    return ctx.g.add("slice", [x], starts=starts, sizes=(size, *x.shape[1:]), steps=steps)


def inserted(ctx: HasBuilder, x: Ragged, item: Value, position: Value | None) -> Ragged:
    """The sequence with an element before the position, or at its end."""
    g = ctx.g
    one = as_ragged(
        ctx,
        SequenceList((item,), item.dtype),
        SequenceKind(item.dtype, max(x.rank, item.tensor.rank)),
    )
    is_mixed = x.is_mixed or item.tensor.rank != x.rank
    wide = as_ragged(ctx, x, SequenceKind(x.dtype, max(x.rank, item.tensor.rank), is_mixed))
    if position is None:
        data = g.add("concat", [wide.data, one.data], axis=0)
        shapes = g.add("concat", [wide.shapes, one.shapes], axis=0)
        return Ragged(data, shapes, is_mixed)
    at = from_front(ctx, x, position, x.count)
    (before, after), (first, rest) = _cuts(ctx, wide, at, at)
    data = _joined(ctx, wide.data, first, rest, wide.data.shape[0], one.data)
    shapes = _joined(ctx, wide.shapes, before, after, x.count, one.shapes)
    return Ragged(data, shapes, is_mixed)


def erased(ctx: HasBuilder, x: Ragged, position: Value | None) -> Ragged:
    """The sequence without the element at the position, or the last one."""
    position = scalar(ctx, -1, dtypes.i64) if position is None else position
    at = from_front(ctx, x, position, tidy(ctx, x.count - 1))
    behind = ctx.g.add("add", [at, scalar(ctx, 1, dtypes.i64)])
    (before, after), (first, rest) = _cuts(ctx, x, at, behind)
    data = _joined(ctx, x.data, first, rest, x.data.shape[0])
    shapes = _joined(ctx, x.shapes, before, after, x.count)
    return Ragged(data, shapes, x.is_mixed)


def _cuts(
    ctx: HasBuilder, x: Ragged, stop: Value, start: Value
) -> tuple[tuple[Dim, Dim], tuple[Dim, Dim]]:
    """How many elements, and how many numbers of `data`, come before `stop`, and from `start`."""
    g, places = ctx.g, with_start(ctx, lengths(ctx, x))
    vector = [g.add("reshape", [at], shape=(1,)) for at in (stop, start)]
    count, total = size_value(ctx, x.count), size_value(ctx, x.data.shape[0])
    first, last = (g.add("gather", [places, at], axis=0) for at in vector)
    rows = [vector[0], g.add("sub", [count, vector[1]])]
    rows += [first, g.add("sub", [total, last])]
    before, after, head, tail = bound_sizes(ctx, g.add("concat", rows, axis=0))
    return (before, after), (head, tail)


def _joined(
    ctx: HasBuilder, x: Value, before: Dim, after: Dim, size: Dim, middle: Value | None = None
) -> Value:
    """The first `before` rows, `middle`, and the last `after` rows of x, which has `size` rows."""
    g = ctx.g
    parts = [slice_of(ctx, x, arith.Const(0), before)]
    parts += [] if middle is None else [middle]
    parts.append(slice_of(ctx, x, tidy(ctx, size - after), after))
    made = g.add("concat", parts, axis=0)
    if middle is None:
        return made
    return reshape(ctx, made, (size + middle.shape[0], *x.shape[1:]))


# --- along an axis ------------------------------------------------------------------------------


def stacked(ctx: HasBuilder, x: Ragged, axis: int) -> Value:
    """The elements, all of one shape, along a new axis."""
    g, first = ctx.g, _first_shape(ctx, x)
    fits = g.add("eq", [x.shapes, first])
    shape = bound_sizes(ctx, first) if x.rank else ()
    whole = reshape(ctx, _required(ctx, x.data, fits, SHAPES_DIFFER), (x.count, *shape))
    perm = (*range(1, axis + 1), 0, *range(axis + 1, x.rank + 1))
    return g.add("transpose", [whole], perm=perm) if axis else whole


def concatenated(ctx: HasBuilder, x: Ragged, axis: int) -> Value:
    """The elements one after the other along an axis; the other sizes are equal."""
    g, first = ctx.g, _first_shape(ctx, x)
    is_axis = g.constant(np.arange(x.rank) == axis)
    fits = g.add("or", [g.add("eq", [x.shapes, first]), is_axis])
    widths = g.add("gather", [x.shapes, g.constant(np.array(axis, np.int64))], axis=1)
    length = g.add("reduce_sum", [widths], axes=(0,), keepdims=True)
    *shape, total = bound_sizes(ctx, g.add("concat", [first, length], axis=0))
    shape[axis] = total
    data = _required(ctx, x.data, fits, SHAPES_DIFFER)
    if axis == 0:
        return reshape(ctx, data, shape)
    places = _places(ctx, widths, tuple(shape), axis)
    return reshape(ctx, g.add("gather", [data, places], axis=0), shape)


def single_slices(ctx: HasBuilder, x: Value, axis: int, keep_axis: bool) -> Ragged:
    """x cut along an axis into slices of size 1; without that axis, unless it is kept."""
    g, rank = ctx.g, x.tensor.rank
    perm = (axis, *(a for a in range(rank) if a != axis))
    front = g.add("transpose", [x], perm=perm) if axis else x
    sizes = [arith.wrap(1) if a == axis else d for a, d in enumerate(x.shape)]
    sizes = [d for a, d in enumerate(sizes) if keep_axis or a != axis]
    row = size_value(ctx, *sizes)
    shapes = g.add("expand", [row], shape=(x.shape[axis], len(sizes)))
    return Ragged(reshape(ctx, front, (x.tensor.numel,)), shapes)


def split(ctx: HasBuilder, x: Value, widths: Value, axis: int) -> Ragged:
    """x cut along an axis into pieces of these sizes, i64[count]."""
    g, rank, count = ctx.g, x.tensor.rank, widths.shape[0]
    total = g.add("reduce_sum", [widths], axes=(0,), keepdims=True)
    is_whole = g.add("eq", [total, size_value(ctx, x.shape[axis])])
    x = _required(ctx, x, is_whole, BAD_SPLIT)
    data = reshape(ctx, x, (x.tensor.numel,))
    if axis:
        places = reshape(ctx, _places(ctx, widths, x.shape, axis), (x.tensor.numel,))
        data = g.add("scatter_elements", [data, places, data], axis=0)
    column = g.add("reshape", [widths], shape=(count, 1))
    is_axis = g.constant(np.arange(rank) == axis)
    return Ragged(data, g.add("where", [is_axis, column, size_value(ctx, *x.shape)]))


def chunk_widths(ctx: HasBuilder, length: Dim, chunk: Value) -> Value:
    """Sizes of pieces of `chunk` elements of an axis; the last may be shorter."""
    g, zero, one = ctx.g, *(scalar(ctx, n, dtypes.i64) for n in (0, 1))
    chunk = g.add("require", [chunk, g.add("ge", [chunk, one])], expected=True, reason=BAD_SPLIT)
    size = size_scalar(ctx, length)
    more = g.add("div", [g.add("add", [size, g.add("sub", [chunk, one])]), chunk])
    (count,) = bound_sizes(ctx, g.add("reshape", [more], shape=(1,)))
    number = g.add("range", [zero, size_scalar(ctx, count), one], size=count)
    left = g.add("sub", [size, g.add("mul", [number, chunk])])
    return g.add("min", [left, chunk])


def _first_shape(ctx: HasBuilder, x: Ragged) -> Value:
    """Of the first element; the run fails if there is none."""
    return ctx.g.add("gather", [x.shapes, scalar(ctx, 0, dtypes.i64)], axis=0)


def _required(ctx: HasBuilder, x: Value, fits: Value, reason: str) -> Value:
    """x, if all of these hold."""
    axes = tuple(range(fits.tensor.rank))
    flag = ctx.g.add("reduce_min", [fits], axes=axes, keepdims=False)
    return ctx.g.add("require", [x, flag], expected=True, reason=reason)


def _places(ctx: HasBuilder, widths: Value, shape: Sequence[Dim], axis: int) -> Value:
    """For each element of a tensor of this shape, i64[outer, length, inner]: its place in the data
    of the pieces of these sizes along the axis, which are stored one after the other."""
    g = ctx.g
    outer, inner = (arith.product(list(s)) for s in (shape[:axis], shape[axis + 1 :]))
    number, step = (_numbers(ctx, size) for size in (shape[axis], inner))
    starts = with_start(ctx, widths)
    begun = slice_of(ctx, starts, arith.Const(1), widths.shape[0])
    column = g.add("reshape", [number], shape=(shape[axis], 1))
    is_past = g.add("cast", [g.add("le", [begun, column])], to=dtypes.i64, mode="wrap")
    piece = g.add("reduce_sum", [is_past], axes=(1,), keepdims=False)
    width, first = (g.add("gather", [v, piece], axis=0) for v in (widths, starts))
    inside = g.add("sub", [number, first])
    # a piece begins at first * outer * inner, and has rows of width * inner
    block, run = size_scalar(ctx, outer * inner), size_scalar(ctx, inner)
    base = g.add("add", [g.add("mul", [first, block]), g.add("mul", [inside, run])])
    stride = g.add("mul", [width, run])
    rows = g.add("reshape", [_numbers(ctx, outer)], shape=(outer, 1))
    lines = g.add("add", [base, g.add("mul", [rows, stride])])
    lines = g.add("reshape", [lines], shape=(outer, shape[axis], 1))
    return g.add("add", [lines, step])


def _numbers(ctx: HasBuilder, size: Dim) -> Value:
    """0 … size - 1"""
    zero, one = (scalar(ctx, n, dtypes.i64) for n in (0, 1))
    return ctx.g.add("range", [zero, size_scalar(ctx, size), one], size=size)

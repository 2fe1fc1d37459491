"""Converters of views by strides, diagonals and windows, and of writes into views.

In: a tensor, and where a view of it lies. Out: gathers, slices, and `write_rows`. Called by the
importer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ingot.arith import expr as arith
from ingot.frontends.common.elements import reshape, tidy
from ingot.frontends.torch.common import axis_of, cast, known_int, transposed
from ingot.frontends.torch.indexing import scattered_rows
from ingot.frontends.torch.movement import first_of, part
from ingot.frontends.torch.registry import Importer, TorchNode, aten
from ingot.frontends.torch.sources import positions
from ingot.frontends.torch.terms import Term
from ingot.graph.ir import Value

Sizes = Sequence[arith.IntLike]


def in_storage_order(ctx: Importer, node: TorchNode, x: Value) -> Value:
    """All elements as they lie in memory, as a vector."""
    fake = node.fx.args[0].meta["val"]  # type: ignore[union-attr]
    strides = [int(s) if isinstance(s, int) else 0 for s in fake.stride()]
    order = sorted(range(x.tensor.rank), key=lambda k: -strides[k])
    is_plain = fake.is_contiguous()
    return reshape(ctx, x if is_plain else transposed(ctx, x, order), (x.tensor.numel,))


def strided_places(ctx: Importer, node: TorchNode, sizes: Sizes, strides: Sizes, offset) -> Value:
    """The element of the storage for each point of the view."""
    numbers = [[known_int(ctx, node, v, "a size or stride") for v in row]
               for row in (sizes, strides)]  # fmt: skip
    places = np.full(numbers[0], known_int(ctx, node, offset, "the offset"), np.int64)
    for axis, (size, stride) in enumerate(zip(*numbers)):
        row = np.arange(size) * stride
        places += row.reshape(-1, *(1,) * (len(numbers[0]) - axis - 1))
    return ctx.g.constant(places)


@aten("aten.as_strided.default", "aten.as_strided_copy.default")
def as_strided(
    ctx: Importer, node: TorchNode, x: Value, sizes: Sizes, strides: Sizes,
    offset: arith.IntLike | None = None,
) -> Value:  # fmt: skip
    flat = in_storage_order(ctx, node, x)
    begin = node.fx.args[0].meta["val"].storage_offset() if offset is None else offset  # type: ignore
    if is_dense(node, sizes, strides):
        count = arith.product([arith.wrap(d) for d in sizes])
        return reshape(ctx, part(ctx, flat, 0, begin, count), node.output.shape)
    places = strided_places(ctx, node, sizes, strides, begin)
    return ctx.g.add("gather", [flat, places], axis=0)


def is_dense(node: TorchNode, sizes: Sizes, strides: Sizes) -> bool:
    wanted = 1
    for size, stride in zip(reversed(sizes), reversed(strides)):
        if size == 1:
            continue
        if not isinstance(size, int) or stride != wanted:
            return False
        wanted *= size
    return True


@aten("aten.as_strided_scatter.default")
def as_strided_scatter(
    ctx: Importer, node: TorchNode, x: Value, source: Value, sizes: Sizes, strides: Sizes,
    offset: arith.IntLike | None = None,
) -> Value:  # fmt: skip
    flat = reshape(ctx, x, (x.tensor.numel,))
    places = strided_places(ctx, node, sizes, strides, offset or 0)
    count = places.tensor.numel
    rows = [reshape(ctx, places, (count, 1)), reshape(ctx, cast(ctx, source, x.dtype), (count,))]
    made = ctx.g.add("scatter_nd", [flat, *rows], reduction="none")
    return reshape(ctx, made, x.shape)


# --- diagonals ----------------------------------------------------------------------------------


@aten("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(
    ctx: Importer, node: TorchNode, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Value:
    rank = x.tensor.rank
    a, b = axis_of(dim1, rank), axis_of(dim2, rank)
    rest = [k for k in range(rank) if k not in (a, b)]
    moved = transposed(ctx, x, [*rest, a, b])
    rows, columns = moved.shape[-2:]
    width = known_int(ctx, node, columns, "the second size of a diagonal")
    size = node.output.shape[-1]
    if arith.is_const(size, 0):
        return ctx.g.add("fill", [ctx.scalar(0, x.dtype)], shape=node.output.shape)
    flat = reshape(ctx, moved, (*moved.shape[:-2], tidy(ctx, rows * columns)))
    start = offset if offset >= 0 else -offset * width
    return part(ctx, flat, len(rest), start, size, width + 1)


@aten("aten.diagonal_scatter.default")
def diagonal_scatter(
    ctx: Importer, node: TorchNode, x: Value, source: Value, offset: int = 0, dim1: int = 0,
    dim2: int = 1,
) -> Value:  # fmt: skip
    """The diagonal is chosen by a mask of two axes."""
    rank = x.tensor.rank
    a, b = axis_of(dim1, rank), axis_of(dim2, rank)
    rest = [k for k in range(rank) if k not in (a, b)]
    moved = transposed(ctx, x, [*rest, a, b])
    rows, columns = moved.shape[-2:]
    row = Term(ctx, reshape(ctx, positions(ctx, rows), (rows, 1)))
    on = Term(ctx, positions(ctx, columns)).equals(row + offset)
    # source[…, k] stands in row k, or in row k - offset where the diagonal starts lower
    before = -offset if offset < 0 else 0
    size = source.shape[-1]
    amounts: Any = {"before": (0,) * len(rest) + (before,),
               "after": (0,) * len(rest) + (tidy(ctx, rows - size - before),)}  # fmt: skip
    wide = ctx.g.add("pad", [cast(ctx, source, x.dtype), None], mode="constant", **amounts)
    column = reshape(ctx, wide, (*wide.shape, 1))
    made = ctx.g.add("where", [on.value, column, moved])
    return transposed(ctx, made, np.argsort([*rest, a, b]).tolist())


# --- windows ------------------------------------------------------------------------------------


@aten("aten.unfold.default", "aten.unfold_copy.default")
def unfold(ctx: Importer, node: TorchNode, x: Value, dim: int, size: int, step: int) -> Value:
    """Windows of an axis, whose elements are a new last axis."""
    if not x.tensor.rank:
        return reshape(ctx, x, node.output.shape)
    axis = axis_of(dim, x.tensor.rank)
    count = node.output.shape[axis]
    start = Term(ctx, reshape(ctx, positions(ctx, count), (count, 1))) * step
    places = start + Term(ctx, positions(ctx, arith.wrap(size)))
    found = ctx.g.add("gather", [x, places.value], axis=axis)
    order = [k for k in range(found.tensor.rank) if k != axis + 1]
    return transposed(ctx, found, [*order, axis + 1])


# --- writes into slices -------------------------------------------------------------------------


@aten("aten.slice_scatter.default")
def slice_scatter(
    ctx: Importer, node: TorchNode, x: Value, source: Value, dim: int = 0,
    start: arith.IntLike | None = None, end: arith.IntLike | None = None, step: arith.IntLike = 1,
) -> Value:  # fmt: skip
    axis = axis_of(dim, x.tensor.rank)
    begin = first_of(ctx, start, x.shape[axis])
    rows = cast(ctx, source, x.dtype)
    count = rows.shape[axis]
    if arith.is_const(count, 0):
        return x
    if tidy(ctx, count) == x.shape[axis]:
        return rows
    if step == 1:
        return ctx.g.add("write_rows", [x, rows], axis=axis, at=begin)
    at = Term(ctx, positions(ctx, count)) * step + ctx_scalar(ctx, begin)
    return scattered_rows(ctx, x, axis, at.value, rows, "none")


def ctx_scalar(ctx: Importer, size: arith.Expr) -> arith.IntLike:
    number = arith.as_int(size)
    return size if number is None else number


@aten("aten.select_scatter.default")
def select_scatter(
    ctx: Importer, node: TorchNode, x: Value, source: Value, dim: int, index: arith.IntLike
) -> Value:
    axis = axis_of(dim, x.tensor.rank)
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    row = ctx.g.add("expand", [reshape(ctx, cast(ctx, source, x.dtype), shape)], shape=shape)
    if arith.is_const(x.shape[axis], 1):
        return row
    return ctx.g.add("write_rows", [x, row], axis=axis, at=first_of(ctx, index, x.shape[axis]))

"""Converters of indexed reads and writes: gather, scatter, index, index_put, embedding, masks.

In: a tensor and integer or bool indices. Out: nodes of ops/gather.py and ops/scatter.py. Called by
the importer. An index list has one entry for each leading axis, None for one that is kept whole; a
mask stands for the indices of its true elements, whose number the run finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.frontends.common.elements import broadcast, indices, reshape, tidy
from ingot.frontends.torch.common import (
    axis_of,
    cast,
    filled,
    moved_axis,
    promoted,
    transposed,
    widened,
)
from ingot.frontends.torch.movement import at_index, joined
from ingot.frontends.torch.reduce import norm_of
from ingot.frontends.torch.registry import Importer, Scalar, TorchNode, aten
from ingot.frontends.torch.sources import positions
from ingot.frontends.torch.terms import Term, where
from ingot.graph.ir import Value

REDUCTIONS = {"sum": "add", "prod": "mul", "amin": "min", "amax": "max", "mean": "add",
              "add": "add", "multiply": "mul"}  # fmt: skip

# --- along one axis -----------------------------------------------------------------------------


def vector(ctx: Importer, x: Value) -> Value:
    return x if x.tensor.rank else reshape(ctx, x, (1,))


def empty_of(ctx: Importer, node: TorchNode) -> Value:
    return filled(ctx, 0, node.output.dtype, node.output.shape)


@aten("aten.index_select.default")
def index_select(ctx: Importer, node: TorchNode, x: Value, dim: int, index: Value) -> Value:
    rows = indices(ctx, vector(ctx, index))
    found = ctx.g.add("gather", [vector(ctx, x), rows], axis=axis_of(dim, x.tensor.rank))
    return found if x.tensor.rank else reshape(ctx, found, ())


@aten("aten.gather.default")
def gather(
    ctx: Importer, node: TorchNode, x: Value, dim: int, index: Value, sparse_grad: bool = False
) -> Value:
    if arith.is_const(index.tensor.numel, 0):
        return empty_of(ctx, node)
    operands = [vector(ctx, x), indices(ctx, vector(ctx, index))]
    if operands[0].tensor.rank != operands[1].tensor.rank:
        return empty_of(ctx, node)
    found = ctx.g.add("gather_elements", operands, axis=axis_of(dim, x.tensor.rank))
    return reshape(ctx, found, index.shape)


@aten("aten.take_along_dim.default")
def take_along_dim(
    ctx: Importer, node: TorchNode, x: Value, index: Value, dim: int | None = None
) -> Value:
    if dim is None:
        x, index, dim = (*(reshape(ctx, v, (v.tensor.numel,)) for v in (x, index)), 0)
    axis = axis_of(dim, x.tensor.rank)
    ones = tuple(arith.Const(1) if k == axis else d for k, d in enumerate(x.shape))
    others = tuple(arith.Const(1) if k == axis else d for k, d in enumerate(index.shape))
    shape = list(broadcast(ctx, ones, others))
    whole = [*shape[:axis], x.shape[axis], *shape[axis + 1 :]]
    shape[axis] = index.shape[axis]
    x, index = (ctx.g.add("expand", [v], shape=tuple(s)) for v, s in ((x, whole), (index, shape)))
    return ctx.g.add("gather_elements", [x, indices(ctx, index)], axis=axis)


@aten("aten.take.default")
def take(ctx: Importer, node: TorchNode, x: Value, index: Value) -> Value:
    flat = reshape(ctx, x, (x.tensor.numel,))
    return ctx.g.add("gather", [flat, indices(ctx, index)], axis=0)


@aten("aten.scatter.src", "aten.scatter.value")
def scatter(ctx: Importer, node: TorchNode, x: Value, dim: int, index: Value, src: Scalar) -> Value:
    return scattered(ctx, x, dim, index, src, "none")


@aten("aten.scatter.reduce", "aten.scatter.value_reduce")
def scatter_with(
    ctx: Importer, node: TorchNode, x: Value, dim: int, index: Value, src: Scalar, *, reduce: str
) -> Value:
    return scattered(ctx, x, dim, index, src, REDUCTIONS[reduce])


@aten("aten.scatter_add.default")
def scatter_add(
    ctx: Importer, node: TorchNode, x: Value, dim: int, index: Value, src: Value
) -> Value:
    return scattered(ctx, x, dim, index, src, "add")


def scattered(
    ctx: Importer, x: Value, dim: int, index: Value, src: Scalar, reduction: str
) -> Value:
    """The updates are the part of the source that has the index's shape. bool adds as `or`."""
    if arith.is_const(index.tensor.numel, 0):
        return x
    rank, at = x.tensor.rank, indices(ctx, vector(ctx, index))
    if isinstance(src, Value) and src.tensor.rank:
        starts, steps = (0,) * at.tensor.rank, (1,) * at.tensor.rank
        if src.shape != at.shape:
            src = ctx.g.add("slice", [src], starts=starts, sizes=at.shape, steps=steps)
    else:
        src = filled(ctx, src, x.dtype, at.shape)
    wide = narrow_free(x, reduction)
    operands = [cast(ctx, vector(ctx, x), wide), at, cast(ctx, src, wide)]
    made = ctx.g.add("scatter_elements", operands, axis=axis_of(dim, rank), reduction=reduction)
    return cast(ctx, reshape(ctx, made, x.shape), x.dtype)


def narrow_free(x: Value, reduction: str) -> DType:
    """The type in which updates are combined: bool as numbers; f16 and bf16 round every time, as in
    torch."""
    return dtypes.i32 if x.dtype.is_bool and reduction != "none" else x.dtype


@aten("aten.scatter_reduce.two")
def scatter_reduce(
    ctx: Importer, node: TorchNode, x: Value, dim: int, index: Value, src: Value, reduce: str,
    *, include_self: bool = True,
) -> Value:  # fmt: skip
    if arith.is_const(index.tensor.numel, 0):
        return x
    op = REDUCTIONS[reduce]
    start = x if include_self else scattered(ctx, x, dim, index, neutral(op, x), "none")
    made = scattered(ctx, start, dim, index, src, op)
    return made if reduce != "mean" else averaged(ctx, made, dim, index, include_self)


def neutral(op: str, x: Value) -> float | int | bool:
    if x.dtype.is_bool:
        return op in ("mul", "min")
    return {"add": 0, "mul": 1, "min": x.dtype.highest, "max": x.dtype.lowest}[op]


def averaged(ctx: Importer, total: Value, dim: int, index: Value, include_self: bool) -> Value:
    """Divided by the number of elements that were added; integers round down."""
    ones = filled(ctx, 1 if include_self else 0, total.dtype, total.shape)
    counts = Term(ctx, scattered(ctx, ones, dim, index, 1, "add"))
    counts = counts.op("max", 1)
    made = Term(ctx, total)
    if total.dtype.is_float:
        return (made / counts).value
    return ((made - made.op("mod", counts, fmod=False)) / counts).value


def written_along(ctx: Importer, x: Value, axis: int, at: Value, rows: Value) -> Value:
    """x with the slices at[k] of an axis replaced. x keeps its order of axes: where it is a state
    (a KV cache), only the slices are written."""
    shape = tuple(1 if k != axis else at.tensor.numel for k in range(x.tensor.rank))
    places = ctx.g.add("expand", [reshape(ctx, indices(ctx, at), shape)], shape=rows.shape)
    return ctx.g.add("scatter_elements", [x, places, rows], axis=axis, reduction="none")


def scattered_rows(
    ctx: Importer, x: Value, axis: int, at: Value, rows: Value, reduction: str
) -> Value:
    """x with the slices at[k] of an axis replaced by, or combined with, those of `rows`."""
    if axis and reduction == "none":
        return written_along(ctx, x, axis, at, rows)
    wide = narrow_free(x, reduction)
    front = cast(ctx, moved_axis(ctx, x, axis, 0), wide)
    updates = cast(ctx, moved_axis(ctx, rows, axis, 0), wide)
    points = reshape(ctx, indices(ctx, at), (at.tensor.numel, 1))
    made = ctx.g.add("scatter_nd", [front, points, updates], reduction=reduction)
    return cast(ctx, moved_axis(ctx, made, 0, axis), x.dtype)


@aten("aten.index_copy.default")
def index_copy(
    ctx: Importer, node: TorchNode, x: Value, dim: int, index: Value, src: Value
) -> Value:
    return written_rows(ctx, x, dim, index, src, "none")


@aten("aten.index_add.default")
def index_add(
    ctx: Importer, node: TorchNode, x: Value, dim: int, index: Value, src: Value, *,
    alpha: Any = 1,
) -> Value:  # fmt: skip
    if alpha != 1:
        src = (Term(ctx, cast(ctx, src, x.dtype)) * alpha).value
    return written_rows(ctx, x, dim, index, src, "add")


def written_rows(
    ctx: Importer, x: Value, dim: int, index: Value, src: Value, reduction: str
) -> Value:
    axis = axis_of(dim, x.tensor.rank)
    rows = scattered_rows(
        ctx, vector(ctx, x), axis, vector(ctx, index), vector(ctx, src), reduction
    )
    return reshape(ctx, rows, x.shape)


@aten("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def index_fill(
    ctx: Importer, node: TorchNode, x: Value, dim: int, index: Value, value: Scalar
) -> Value:
    axis, flat, at = axis_of(dim, x.tensor.rank), vector(ctx, x), vector(ctx, index)
    shape = tuple(at.shape[0] if k == axis else d for k, d in enumerate(flat.shape))
    rows = filled(ctx, value, x.dtype, shape)
    return reshape(ctx, scattered_rows(ctx, flat, axis, at, rows, "none"), x.shape)


# --- lists of indices ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Points:
    """Indices of one shape for some axes of x. `first`: where their axes stand in a result."""

    axes: tuple[int, ...]
    at: tuple[Value, ...]
    first: int

    @property
    def shape(self) -> tuple[arith.Expr, ...]:
        return self.at[0].shape


def points_of(ctx: Importer, given: Sequence[Value | None], rank: int) -> Points:
    """Masks as indices, all of them broadcast."""
    expanded: list[Value | None] = []
    for entry in given:
        is_mask = entry is not None and (entry.dtype.is_bool or entry.dtype is dtypes.u8)
        expanded += true_places(ctx, entry) if is_mask and entry is not None else [entry]
    axes = tuple(k for k, entry in enumerate(expanded) if entry is not None)
    found = [indices(ctx, entry) for entry in expanded if entry is not None]
    shape = broadcast(ctx, *(v.shape for v in found))
    at = tuple(v if v.shape == shape else ctx.g.add("expand", [v], shape=shape) for v in found)
    adjacent = axes == tuple(range(axes[0], axes[0] + len(axes)))
    return Points(axes, at, axes[0] if adjacent else 0)


def true_places(ctx: Importer, mask: Value) -> list[Value]:
    """For each axis of the mask, the index of every true element."""
    rank = mask.tensor.rank
    found = nonzero_rows(ctx, vector(ctx, cast(ctx, mask, dtypes.bool_)))
    return [at_index(ctx, found, 0, k) for k in range(max(rank, 1))]


def nonzero_rows(ctx: Importer, x: Value) -> Value:
    """(rank, count): the places of the elements that are not zero; their number is a symbol."""
    symbol = ctx.g.symbol("count", high=arith.as_int(x.tensor.numel))
    return ctx.g.add("nonzero", [x], symbols=(symbol,))


@aten("aten.nonzero.default")
def nonzero(ctx: Importer, node: TorchNode, x: Value) -> Value:
    if not x.tensor.rank:
        found = nonzero_rows(ctx, vector(ctx, x))
        return filled(ctx, 0, dtypes.i64, (found.shape[1], 0))
    return transposed(ctx, nonzero_rows(ctx, x), (1, 0))


@aten("aten.masked_select.default")
def masked_select(ctx: Importer, node: TorchNode, x: Value, mask: Value) -> Value:
    shape = broadcast(ctx, x.shape, mask.shape)
    x, mask = (
        reshape(ctx, ctx.g.add("expand", [v], shape=shape), (arith.product(list(shape)),))
        for v in (x, mask)
    )
    return ctx.g.add("gather", [x, true_places(ctx, mask)[0]], axis=0)


@aten("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(ctx: Importer, node: TorchNode, x: Value, given: Sequence[Value | None]) -> Value:
    if not x.tensor.rank:  # a scalar under a mask
        x = vector(ctx, x)
    points = points_of(ctx, given, x.tensor.rank)
    if len(points.axes) == 1:
        return ctx.g.add("gather", [x, points.at[0]], axis=points.axes[0])
    rest = [k for k in range(x.tensor.rank) if k not in points.axes]
    front = transposed(ctx, x, [*points.axes, *rest])
    rank = len(points.shape)
    found = ctx.g.add("gather_nd", [front, joined(ctx, points.at, rank)], batch_dims=0)
    order = [*range(rank, rank + points.first), *range(rank)]
    return transposed(ctx, found, [*order, *range(rank + points.first, found.tensor.rank)])


@aten("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    ctx: Importer, node: TorchNode, x: Value, given: Sequence[Value | None], values: Value,
    accumulate: bool = False,
) -> Value:  # fmt: skip
    masks = [v for v in given if v is not None]
    is_mask = len(given) == 1 and bool(masks) and masks[0].dtype.is_bool and not accumulate
    if is_mask and arith.is_const(values.tensor.numel, 1):
        return masked_write(ctx, x, masks[0], values)
    shape, flat = x.shape, vector(ctx, x)
    points = points_of(ctx, given, flat.tensor.rank)
    rest = [k for k in range(flat.tensor.rank) if k not in points.axes]
    if len(points.axes) == len(points.shape) == 1 and points.axes[0] and not accumulate:
        (axis,), (count,) = points.axes, points.shape
        rows = tuple(count if k == axis else d for k, d in enumerate(flat.shape))
        values = ctx.g.add("expand", [values], shape=rows) if values.shape != rows else values
        return reshape(ctx, written_along(ctx, flat, axis, points.at[0], values), shape)
    order = [*points.axes, *rest]
    wide = narrow_free(x, "add" if accumulate else "none")
    front = cast(ctx, transposed(ctx, flat, order), wide)
    rank = len(points.shape)
    updates = cast(ctx, put_values(ctx, points, [flat.shape[k] for k in rest], values), wide)
    reduction = "add" if accumulate else "none"
    operands = [front, joined(ctx, points.at, rank), updates]
    made = ctx.g.add("scatter_nd", operands, reduction=reduction)
    back = [order.index(k) for k in range(len(order))]
    return reshape(ctx, cast(ctx, transposed(ctx, made, back), x.dtype), shape)


def put_values(ctx: Importer, points: Points, rest: Sequence[arith.Expr], values: Value) -> Value:
    """The values as (points, other axes); they broadcast to the order that reading gives."""
    first, rank = points.first, len(points.shape)
    shape = (*rest[:first], *points.shape, *rest[first:])
    wide = ctx.g.add("expand", [values], shape=shape) if values.shape != shape else values
    order = [*range(first, first + rank), *range(first), *range(first + rank, len(shape))]
    return transposed(ctx, wide, order)


def masked_write(ctx: Importer, x: Value, mask: Value, value: Value) -> Value:
    """A number where the mask, whose axes are the first ones of x, is true."""
    shape = (*mask.shape, *(1,) * (x.tensor.rank - mask.tensor.rank))
    number = reshape(ctx, cast(ctx, value, x.dtype), ())
    return ctx.g.add("where", [reshape(ctx, mask, shape), number, x])


@aten("aten.masked_scatter.default")
def masked_scatter(ctx: Importer, node: TorchNode, x: Value, mask: Value, source: Value) -> Value:
    """The k-th element under the mask becomes the k-th of the source."""
    shape = node.output.shape
    count = tidy(ctx, arith.product(list(shape)))
    x, mask = (ctx.g.add("expand", [v], shape=shape) for v in (x, mask))
    rows = [reshape(ctx, v, (count,)) for v in (x, cast(ctx, mask, dtypes.bool_))]
    flags = cast(ctx, rows[1], dtypes.i64)
    total = ctx.g.add("cumsum", [flags], axis=0, exclusive=True, reverse=False)
    flat = reshape(ctx, cast(ctx, source, x.dtype), (source.tensor.numel,))
    if arith.is_const(flat.shape[0], 0) or arith.is_const(count, 0):
        return x
    last = tidy(ctx, flat.shape[0] - 1)
    place = Term(ctx, total).op("min", Term(ctx, ctx.scalar(last, dtypes.i64)))
    taken = ctx.g.add("gather", [flat, place.value], axis=0)
    return reshape(ctx, ctx.g.add("where", [rows[1], taken, rows[0]]), shape)


@aten("aten.put.default")
def put(
    ctx: Importer, node: TorchNode, x: Value, index: Value, source: Value, accumulate: bool = False
) -> Value:
    flat = reshape(ctx, x, (x.tensor.numel,))
    at, updates = (reshape(ctx, v, (index.tensor.numel,)) for v in (index, source))
    made = scattered_rows(ctx, flat, 0, at, updates, "add" if accumulate else "none")
    return reshape(ctx, made, x.shape)


# --- classes and tables -------------------------------------------------------------------------


@aten("aten.embedding.default")
def embedding(
    ctx: Importer, node: TorchNode, table: Value, index: Value, padding: Any = -1,
    scale_grad: bool = False, sparse: bool = False,
) -> Value:  # fmt: skip
    return ctx.g.add("gather", [table, indices(ctx, index)], axis=0)


@aten("aten.embedding_renorm.default")
def embedding_renorm(
    ctx: Importer, node: TorchNode, table: Value, index: Value, limit: float, order: float
) -> Value:
    """The rows that are read, scaled so that their norm is at most the limit."""
    at = reshape(ctx, indices(ctx, index), (index.tensor.numel, 1))
    flags = [filled(ctx, n, dtypes.i32, (size,))
             for n, size in ((0, table.shape[0]), (1, at.shape[0]))]  # fmt: skip
    used = ctx.g.add("scatter_nd", [flags[0], at, flags[1]], reduction="none")
    norm = Term(ctx, norm_of(ctx, widened(ctx, table), float(order), -1, True))
    is_long = (norm > limit) & (Term(ctx, reshape(ctx, used, norm.value.shape)) > 0)
    scaled = Term(ctx, widened(ctx, table)) * (limit / (norm + 1e-7))
    return where(is_long, Term(ctx, cast(ctx, scaled.value, table.dtype)), Term(ctx, table)).value


@aten("aten.one_hot.default")
def one_hot(ctx: Importer, node: TorchNode, x: Value, classes: int = -1) -> Value:
    depth = node.output.shape[-1]
    same = ctx.g.add("eq", [reshape(ctx, x, (*x.shape, 1)), positions(ctx, depth, x.dtype)])
    return cast(ctx, same, dtypes.i64)


@aten("aten.bucketize.Tensor", "aten.searchsorted.Tensor")
def bucketize(
    ctx: Importer, node: TorchNode, a: Value, b: Value, *, right: bool = False, **options: Any
) -> Value:
    """The number of boundaries below x (`right`: or equal to it)."""
    x, bounds = (a, b) if "bucketize" in node.target else (b, a)
    if bounds.tensor.rank > 1:
        bounds = reshape(ctx, bounds, (*bounds.shape[:-1], 1, bounds.shape[-1]))
    dtype = max(x.dtype, bounds.dtype, key=lambda d: (d.is_float, d.bits))
    column = Term(ctx, promoted(ctx, reshape(ctx, x, (*x.shape, 1)), dtype))
    row = Term(ctx, cast(ctx, bounds, dtype))
    below = (row <= column) if right else (row < column)
    axes = (below.value.tensor.rank - 1,)
    return ctx.g.add("reduce_sum", [below.to(node.output.dtype).value], axes=axes, keepdims=False)

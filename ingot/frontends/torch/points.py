"""Converters of reads and writes at lists of indices, and under masks: x[i, :, j], x[mask] = y.

In: one entry for each leading axis, None for one that is kept whole; a mask stands for the indices
of its true elements, whose number the run finds. Out: nodes of ops/gather.py and ops/scatter.py.
Called by the importer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import broadcast, indices, reshape, tidy
from ingot.frontends.torch.common import cast, filled, transposed
from ingot.frontends.torch.indexing import narrow_free, scattered_rows, vector, written_along
from ingot.frontends.torch.movement import at_index, joined
from ingot.frontends.torch.registry import Importer, TorchNode, aten
from ingot.frontends.torch.terms import Term
from ingot.graph.ir import Value


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
        values = fitted(ctx, values, rows, axis)
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
    values = fitted(ctx, values, shape, first)
    wide = ctx.g.add("expand", [values], shape=shape) if values.shape != shape else values
    order = [*range(first, first + rank), *range(first), *range(first + rank, len(shape))]
    return transposed(ctx, wide, order)


def fitted(ctx: Importer, values: Value, shape: Sequence[arith.Expr], place: int) -> Value:
    """Values whose number is not that of the elements under a mask, which the run counts: the two
    must be equal. The slice from `count - own` of `count` elements is in bounds for that alone."""
    axis, count = place - len(shape) + values.tensor.rank, shape[place]
    if axis < 0 or not is_found_by_run(ctx, count):
        return values
    own = values.shape[axis]
    if own == count or arith.is_const(own, 1):
        return values
    rest = [arith.Const(0)] * values.tensor.rank
    starts = (*rest[:axis], tidy(ctx, count - own), *rest[axis + 1 :])
    sizes = tuple(count if k == axis else d for k, d in enumerate(values.shape))
    return ctx.g.add("slice", [values], starts=starts, sizes=sizes, steps=(1,) * len(rest))


def is_found_by_run(ctx: Importer, size: arith.Expr) -> bool:
    return isinstance(size, arith.Var) and ctx.g.symbols[size.name].source == "node"


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

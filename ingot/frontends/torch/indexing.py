"""Converters of reads and writes at the indices of one axis: gather, scatter, index_select.

In: a tensor and integer indices. Out: nodes of ops/gather.py and ops/scatter.py. Called by the
importer. Lists of indices and masks are in points.py.
"""

from __future__ import annotations

from typing import Any

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.frontends.common.elements import broadcast, indices, reshape
from ingot.frontends.torch.common import (
    axis_of,
    cast,
    filled,
    moved_axis,
)
from ingot.frontends.torch.registry import Importer, Scalar, TorchNode, aten
from ingot.frontends.torch.terms import Term
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

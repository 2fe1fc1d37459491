"""Converters of tables: embeddings, one-hot rows, boundaries, histograms.

In: indices, or values and boundaries. Out: gathers, comparisons and sums. Called by the importer.
"""

from __future__ import annotations

from typing import Any

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import indices, reshape
from ingot.frontends.torch.common import cast, filled, promoted, widened
from ingot.frontends.torch.reduce import norm_of
from ingot.frontends.torch.registry import Importer, TorchNode, aten
from ingot.frontends.torch.sources import positions
from ingot.frontends.torch.terms import Term, where
from ingot.graph.ir import Value


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


@aten("aten.histc.default")
def histc(
    ctx: Importer, node: TorchNode, x: Value, bins: int = 100, low: Any = 0, high: Any = 0
) -> Value:
    """The number of elements in each bin, the last of which has its upper bound; equal bounds are
    those of the data, or 1 around it."""
    flat = Term(ctx, widened(ctx, reshape(ctx, x, (1, x.tensor.numel))))
    least, most = (flat.lifted(bound) for bound in (low, high))
    if low == high:
        least, most = (
            flat.op(f"reduce_{name}", axes=(0, 1), keepdims=True) for name in ("min", "max")
        )
        gap = where(least.equals(most), flat.lifted(1), flat.lifted(0))
        least, most = least - gap, most + gap
    place = ((flat - least) * bins / (most - least)).op("floor").op("min", bins - 1)
    inside = (flat >= least) & (flat <= most)
    row = Term(ctx, positions(ctx, arith.Const(bins), flat.dtype))
    found = inside & place.equals(Term(ctx, reshape(ctx, row.value, (bins, 1))))
    counts = ctx.g.add("reduce_sum", [found.to(dtypes.i64).value], axes=(1,), keepdims=False)
    return cast(ctx, counts, node.output.dtype)

"""Converters of bags of embeddings: rows of a table, reduced by bag.

In: a table, indices, and where each bag starts. Out: gathers, and scatters that combine. Called by
the importer.
"""

from __future__ import annotations

from typing import Any

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import indices, reshape
from ingot.frontends.torch.common import cast, filled, widened
from ingot.frontends.torch.registry import Importer, TorchNode, aten
from ingot.frontends.torch.sources import positions
from ingot.frontends.torch.terms import Term, where
from ingot.graph.ir import Value

SUM, MEAN, MAX = range(3)


@aten("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default")
def embedding_bag(
    ctx: Importer, node: TorchNode, table: Value, index: Value, offsets: Value,
    scale_grad: bool = False, mode: int = SUM, sparse: bool = False, weights: Value | None = None,
    last_offset: bool = False, padding: Any = -1,
) -> tuple[Value | None, ...]:  # fmt: skip
    """The rows of the padding index count for nothing."""
    g, bags = ctx.g, node.output.shape[0]
    if arith.is_const(node.output.numel, 0):
        return filled(ctx, 0, table.dtype, node.output.shape), None, None, None
    if arith.is_const(index.shape[0], 0):
        return filled(ctx, 0, table.dtype, node.output.shape), None, None, None
    bag = bag_of(ctx, index.shape[0], offsets, bags)
    rows = Term(ctx, widened(ctx, g.add("gather", [table, indices(ctx, index)], axis=0)))
    if weights is not None:
        rows = rows * Term(ctx, reshape(ctx, cast(ctx, weights, rows.dtype), (index.shape[0], 1)))
    counted = Term(ctx, index).differs(padding if padding >= 0 else -1)
    kept = Term(ctx, reshape(ctx, counted.value, (index.shape[0], 1)))
    counts = Term(ctx, combined(ctx, bags, bag, counted.to(rows.dtype).value, "add", 0.0))
    column = Term(ctx, reshape(ctx, counts.value, (bags, 1)))
    if mode == MAX:
        rows = where(kept, rows, float("-inf"))
        found = Term(ctx, combined(ctx, bags, bag, rows.value, "max", float("-inf")))
        found = where(column.equals(0), found.lifted(0.0), found)
    else:
        rows = where(kept, rows, 0.0)
        found = Term(ctx, combined(ctx, bags, bag, rows.value, "add", 0.0))
        found = found / column.op("max", 1.0) if mode == MEAN else found
    sizes = node.outputs[2]
    is_whole = sizes is not None and sizes.rank == 1 and sizes.shape == counts.value.shape
    return (
        cast(ctx, found.value, table.dtype), None,
        counts.to(dtypes.i64).value if is_whole else None, None,
    )  # fmt: skip


def bag_of(ctx: Importer, count: arith.Expr, offsets: Value, bags: arith.Expr) -> Value:
    """The bag of each index: the number of bags that start up to it, less one."""
    starts = Term(ctx, cast(ctx, offsets, dtypes.i64))
    at = Term(ctx, reshape(ctx, positions(ctx, count), (count, 1)))
    passed = (starts <= at).to(dtypes.i64)
    total = Term(ctx, ctx.g.add("reduce_sum", [passed.value], axes=(1,), keepdims=False)) - 1
    last = Term(ctx, ctx.scalar(bags - 1, dtypes.i64))
    return total.op("min", last).value


def combined(
    ctx: Importer, bags: arith.Expr, bag: Value, rows: Value, reduction: str, start: float
) -> Value:
    """The rows of each bag, combined."""
    into = filled(ctx, start, rows.dtype, (bags, *rows.shape[1:]))
    at = reshape(ctx, bag, (bag.shape[0], 1))
    return ctx.g.add("scatter_nd", [into, at, rows], reduction=reduction)

"""The ONNX converter of Unique: sorted rows, of which the first of each run of equal ones is kept.

In: ONNX nodes. Out: nodes of ops/sorting.py, nonzero (which binds the number of rows kept), gather
and scatter. Called by walker.

    order          the rows in ascending order, as indices
    starts         where in `order` a run of equal rows begins: n of them
    run[i]         the number of the run of order[i]
    first          order[starts]: the first row of each run, as equal rows keep their order

Without sorting, runs are numbered by the position of their first row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import cast, reshape, scalar, tidy
from ingot.frontends.onnx.common import axis_of
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value


@dataclass(frozen=True)
class Runs:
    """first, counts: of each run. inverse: the run of each row."""

    first: Value
    inverse: Value
    counts: Value


@onnx_op("Unique")
def unique(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x, axis = ctx.value(node, 0), node.attr("axis")
    if axis is None:
        x, axis = reshape(ctx, x, (tidy(ctx, x.tensor.numel),)), 0
    axis = axis_of(node, axis, x.tensor.rank)
    runs = runs_of(ctx, rows_along(ctx, x, axis))
    if not node.attr("sorted", 1):
        runs = by_first_row(ctx, runs)
    kept = ctx.g.add("gather", [x, runs.first], axis=axis)
    return [kept, runs.first, runs.inverse, runs.counts]


def rows_along(ctx: Importer, x: Value, axis: int) -> Value:
    """(size of the axis, all others)"""
    others = [k for k in range(x.tensor.rank) if k != axis]
    if axis:
        x = ctx.g.add("transpose", [x], perm=(axis, *others))
    width = arith.product([arith.Const(1), *x.shape[1:]])
    return reshape(ctx, x, (x.shape[0], width))


def runs_of(ctx: Importer, rows: Value) -> Runs:
    g, count = ctx.g, rows.shape[0]
    order = g.add("argsort_rows", [rows])
    is_start = g.add("run_starts", [rows, order])
    symbol = g.symbol("unique", high=arith.as_int(count))
    size = arith.Var(symbol)
    starts = reshape(ctx, g.add("nonzero", [is_start], symbols=(symbol,)), (size,))
    run = numbers_of(ctx, is_start)
    counts = scattered(ctx, size, run, filled(ctx, 1, count), "add")
    return Runs(g.add("gather", [order, starts], axis=0), scattered(ctx, count, order, run), counts)


def by_first_row(ctx: Importer, runs: Runs) -> Runs:
    """The runs in the order of their first rows."""
    g, (size,), (count,) = ctx.g, runs.first.shape, runs.inverse.shape
    is_first = scattered(ctx, count, runs.first, filled(ctx, 1, size))
    new = g.add("gather", [numbers_of(ctx, is_first), runs.first], axis=0)
    first, counts = (scattered(ctx, size, new, v) for v in (runs.first, runs.counts))
    return Runs(first, g.add("gather", [new, runs.inverse], axis=0), counts)


def numbers_of(ctx: Importer, flags: Value) -> Value:
    """The number, from 0 on, of the last flag that is set up to each position."""
    total = ctx.g.add(
        "cumsum", [cast(ctx, flags, dtypes.i64)], axis=0, exclusive=False, reverse=False
    )
    return ctx.g.add("sub", [total, scalar(ctx, 1, dtypes.i64)])


def filled(ctx: Importer, value: int, size: arith.Expr) -> Value:
    return ctx.g.add("fill", [], value=value, to=dtypes.i64, shape=(size,))


def scattered(
    ctx: Importer, size: arith.Expr, at: Value, values: Value, reduction: str = "none"
) -> Value:
    """Zeros in which values[i] is written, or added, at at[i]."""
    operands = [filled(ctx, 0, size), at, values]
    return ctx.g.add("scatter_elements", operands, axis=0, reduction=reduction)

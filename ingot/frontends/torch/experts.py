"""Converters of mixtures of experts: rows in groups, each with a matrix of its own.

In: rows sorted by expert, a matrix for each expert, where each group ends. Out: one `matmul` for
each group, of as many rows as the data says. Called by the importer.
"""

from __future__ import annotations

from typing import Any

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.expr import Expr, Var
from ingot.frontends.common.elements import reshape
from ingot.frontends.torch.common import cast, filled, known_int
from ingot.frontends.torch.matmul import product
from ingot.frontends.torch.registry import Importer, TorchNode, aten
from ingot.graph.ir import Value


@aten("aten._grouped_mm.default", "transformers.grouped_mm_fallback.default")
def grouped_mm(
    ctx: Importer, node: TorchNode, x: Value, weights: Value, ends: Value | None = None,
    bias: Value | None = None, out_dtype: Any = None,
) -> Value:  # fmt: skip
    """Rows of group e times weights[e]; group e ends before row ends[e]. Rows after the last group
    are zero."""
    if bias is not None or (x.tensor.rank, weights.tensor.rank) != (2, 3) or ends is None:
        raise ctx.unsupported(node, "groups of anything but rows, or a bias")
    count = known_int(ctx, node, weights.shape[0], "the number of experts")
    rows, width = x.shape[0], weights.shape[2]
    sizes = group_sizes(ctx, ends, count)
    pieces, start = [], arith.wrap(0)
    for expert, size in enumerate(sizes):
        own = sliced(ctx, x, start, size)
        matrix = sliced(ctx, weights, arith.Const(expert), arith.Const(1))
        matrix = reshape(ctx, matrix, weights.shape[1:])
        pieces.append(cast(ctx, product(ctx, own, matrix), node.output.dtype))
        start = start + size
    pieces.append(filled(ctx, 0, node.output.dtype, (rows - start, width)))
    return ctx.g.add("concat", pieces, axis=0)


def group_sizes(ctx: Importer, ends: Value, count: int) -> list[Expr]:
    """The number of rows of each group: symbols, bound when the model runs."""
    g, ends = ctx.g, cast(ctx, ends, dtypes.i64)
    zero = filled(ctx, 0, dtypes.i64, (1,))
    before = g.add("concat", [zero, sliced(ctx, ends, arith.Const(0), arith.Const(count - 1))],
                   axis=0)  # fmt: skip
    symbols = tuple(g.symbol("rows") for _ in range(count))
    g.add("bind", [g.add("sub", [ends, before])], symbols=symbols)
    return [Var(name) for name in symbols]


def sliced(ctx: Importer, x: Value, start: Expr, size: Expr) -> Value:
    """Elements of the first axis."""
    rest = x.shape[1:]
    starts, steps = (start, *(arith.Const(0) for _ in rest)), (1,) * x.tensor.rank
    return ctx.g.add("slice", [x], starts=starts, sizes=(size, *rest), steps=steps)

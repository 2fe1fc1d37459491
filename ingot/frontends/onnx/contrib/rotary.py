"""Converter of com.microsoft's RotaryEmbedding, and the rotation for group_query.py.

In: ONNX nodes; positions and tables of cosines and sines. Out: x with its pairs of numbers rotated.
Called by walker.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import Dims, cast, indices, reshape, tidy
from ingot.frontends.onnx.contrib.checks import MICROSOFT, int_attr, rank_of
from ingot.frontends.onnx.contrib.masks import counting
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value
from ingot.ops.common import same_dim


@onnx_op("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """x is (batch, rows, hidden), or (batch, heads, rows, size)."""
    x, cos, sin = ctx.value(node, 0), ctx.value(node, 2), ctx.value(node, 3)
    if int_attr(node, "is_packed_batching", 0):
        raise ctx.unsupported(node, "a ragged batch, is_packed_batching")
    is_interleaved = bool(int_attr(node, "interleaved", 0))
    if rank_of(node, x, 3, 4) == 4:
        rows = position_table(ctx, node, x.shape[0], x.shape[2])
        cos, sin = (table_rows(ctx, t, rows, axis=1) for t in (cos, sin))
        return [rotated(ctx, x, cos, sin, is_interleaved)]
    batch, length, hidden = x.shape
    has_dim, heads = int_attr(node, "rotary_embedding_dim", 0), int_attr(node, "num_heads", 0)
    size = hidden // heads if has_dim and heads else cos.shape[1] * 2
    split = reshape(ctx, x, (batch, length, hidden // size, size))
    rows = position_table(ctx, node, batch, length)
    cos, sin = (table_rows(ctx, t, rows, axis=2) for t in (cos, sin))
    return [reshape(ctx, rotated(ctx, split, cos, sin, is_interleaved), x.shape)]


def position_table(ctx: Importer, node: OnnxNode, batch: arith.Expr, length: arith.Expr) -> Value:
    """The positions (batch, rows), or (1, rows) where the operand is the first one's."""
    given = indices(ctx, ctx.value(node, 1))
    if given.tensor.rank == 2:
        return given
    first = reshape(ctx, given, (1, 1))
    return ctx.g.add("add", [first, reshape(ctx, counting(ctx, length, given.dtype), (1, length))])


def table_rows(ctx: Importer, table: Value, positions: Value, axis: int) -> Value:
    """The rows of a table at (batch, rows), with an axis of size 1 for the heads."""
    rows = ctx.g.add("gather", [table, positions], axis=0)
    return reshape(ctx, rows, (*rows.shape[:axis], 1, *rows.shape[axis:]))


def rotated(ctx: Importer, x: Value, cos: Value, sin: Value, is_interleaved: bool) -> Value:
    """Pairs of the first 2 · half numbers of the last axis: (a·cos - b·sin, b·cos + a·sin) for each
    pair (a, b). They are neighbours if interleaved, else half apart. The other numbers stay."""
    half, size = tidy(ctx, cos.shape[-1]), tidy(ctx, x.shape[-1])
    turned = tidy(ctx, half * 2)
    lead = x.shape[:-1]
    head = x if same_dim(turned, size) else last(ctx, x, arith.Const(0), turned)
    if is_interleaved:
        pairs = reshape(ctx, head, (*lead, half, 2))
        a, b = (reshape(ctx, last(ctx, pairs, arith.Const(i), 1), (*lead, half)) for i in (0, 1))
    else:
        a, b = last(ctx, head, arith.Const(0), half), last(ctx, head, half, half)
    cos, sin = cast(ctx, cos, x.dtype), cast(ctx, sin, x.dtype)
    g = ctx.g
    real = g.add("sub", [g.add("mul", [a, cos]), g.add("mul", [b, sin])])
    imaginary = g.add("add", [g.add("mul", [b, cos]), g.add("mul", [a, sin])])
    if is_interleaved:
        parts = [reshape(ctx, v, (*lead, half, 1)) for v in (real, imaginary)]
        made = [reshape(ctx, g.add("concat", parts, axis=x.tensor.rank), (*lead, turned))]
    else:
        made = [real, imaginary]
    if not same_dim(turned, size):
        made.append(last(ctx, x, turned, tidy(ctx, size - turned)))
    return made[0] if len(made) == 1 else g.add("concat", made, axis=x.tensor.rank - 1)


def last(ctx: Importer, x: Value, start: arith.Expr, size: arith.IntLike) -> Value:
    """x[…, start : start + size]"""
    rank = x.tensor.rank
    sizes: Dims = (*x.shape[:-1], arith.wrap(size))
    return ctx.g.add(
        "slice", [x], starts=(*(0,) * (rank - 1), start), sizes=sizes, steps=(1,) * rank
    )


def positions_from(ctx: Importer, first: Value, length: arith.Expr) -> Value:
    """first[b] + 0, 1, …: (batch, rows)"""
    column = reshape(ctx, cast(ctx, first, dtypes.i32), (*first.shape, 1))
    return ctx.g.add("add", [column, counting(ctx, length)])

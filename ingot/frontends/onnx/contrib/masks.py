"""Masks of com.microsoft's attention operators, as tensors that are added to the scores.

In: a mask in any of the forms that a file may give, sizes. Out: f32 tensors that broadcast to
(batch, heads, rows, keys): 0 where a key is seen, `mask_filter_value` where it is padding, the
lowest number where it is in the future. Called by attention.py and group_query.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.frontends.common.elements import cast, reshape, scalar, tidy
from ingot.frontends.onnx.registry import Importer, OnnxNode
from ingot.graph.ir import Value
from ingot.ops.common import same_dim

LOWEST = float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class Sizes:
    """Of one attention: sequences, rows of Q and of K, the past ones included."""

    batch: arith.Expr
    rows: arith.Expr
    keys: arith.Expr


def counting(ctx: Importer, size: arith.Expr, dtype: DType = dtypes.i32) -> Value:
    """0, 1, …, size - 1"""
    limit = ctx.g.add("index_tensor", [], values=(size,), shape=())
    operands = [scalar(ctx, 0, dtype), cast(ctx, limit, dtype), scalar(ctx, 1, dtype)]
    return ctx.g.add("range", operands, size=size)


def size_value(ctx: Importer, size: arith.Expr, dtype: DType = dtypes.i32) -> Value:
    return cast(ctx, ctx.g.add("index_tensor", [], values=(size,), shape=()), dtype)


def added(ctx: Importer, seen: Value, otherwise: float) -> Value:
    """0 where `seen`, else `otherwise`."""
    zero, hidden = (scalar(ctx, v, dtypes.f32) for v in (0.0, otherwise))
    return ctx.g.add("where", [seen, zero, hidden])


def both(ctx: Importer, a: Value | None, b: Value | None) -> Value | None:
    if a is None or b is None:
        return b if a is None else a
    return ctx.g.add("add", [a, b])


def causal_mask(ctx: Importer, sizes: Sizes) -> Value:
    """Row i sees the keys up to i + keys - rows: (rows, keys)."""
    first = size_value(ctx, tidy(ctx, sizes.keys - sizes.rows))
    rows = ctx.g.add("add", [counting(ctx, sizes.rows), first])
    rows, keys = reshape(ctx, rows, (sizes.rows, 1)), counting(ctx, sizes.keys)
    return added(ctx, ctx.g.add("le", [keys, rows]), LOWEST)


def padding_mask(
    ctx: Importer, node: OnnxNode, mask: Value, sizes: Sizes, filter_value: float
) -> Value:
    """The mask of padding keys in any of its forms:

    (batch)                 the length of each sequence, padded on the right
    (2 · batch)             the ends, then the starts: padded on the left
    (3 · batch + 2)         the lengths first; the starts that follow are not needed
    (batch, keys)           1 for a key that is seen
    (batch, rows, keys)     the same for each row
    """
    match mask.tensor.rank:
        case 1:
            seen = _seen_by_length(ctx, mask, sizes)
        case 2:
            b, t = mask.shape
            seen = _is_positive(ctx, reshape(ctx, mask, (b, 1, 1, t)))
        case 3:
            b, s, t = mask.shape
            seen = _is_positive(ctx, reshape(ctx, mask, (b, 1, s, t)))
        case _:
            raise ctx.unsupported(node, f"a mask of type {mask.type}", "give it 1 to 3 axes")
    return added(ctx, seen, filter_value)


def _is_positive(ctx: Importer, mask: Value) -> Value:
    if mask.dtype.is_bool:
        return mask
    return ctx.g.add("gt", [mask, scalar(ctx, 0, mask.dtype)])


def _seen_by_length(ctx: Importer, mask: Value, sizes: Sizes) -> Value:
    keys = counting(ctx, sizes.keys, mask.dtype)
    given, batch = tidy(ctx, mask.shape[0]), tidy(ctx, sizes.batch)
    if same_dim(given, tidy(ctx, batch * 2)):
        ends, starts = (_part(ctx, mask, at, batch) for at in (arith.Const(0), batch))
        return ctx.g.add("and", [ctx.g.add("lt", [keys, ends]), ctx.g.add("ge", [keys, starts])])
    if arith.as_int(given) is not None and same_dim(given, tidy(ctx, batch * 3 + 2)):
        return ctx.g.add("lt", [keys, _part(ctx, mask, arith.Const(0), batch)])
    return ctx.g.add("lt", [keys, reshape(ctx, mask, (given, 1, 1, 1))])


def _part(ctx: Importer, mask: Value, start: arith.Expr, size: arith.Expr) -> Value:
    part = ctx.g.add("slice", [mask], starts=(start,), sizes=(size,), steps=(1,))
    return reshape(ctx, part, (size, 1, 1, 1))

"""Converters of scaled dot-product attention.

In: queries (…, rows, width), keys and values (…, columns, width), maybe a mask. Out: two matmuls
with a softmax between them, which passes/match_attention.py makes one kernel. Called by the
importer. Scores of f16 and bf16 are f32. A row whose columns are all masked gives zeros.
"""

from __future__ import annotations

import math

from ingot.arith import expr as arith
from ingot.frontends.common.elements import reshape, tidy
from ingot.frontends.torch.common import cast, widened
from ingot.frontends.torch.matmul import swapped
from ingot.frontends.torch.random import dropped
from ingot.frontends.torch.registry import Importer, TorchNode, aten
from ingot.frontends.torch.sources import positions
from ingot.frontends.torch.terms import Term, where
from ingot.graph.ir import Value


@aten("aten.scaled_dot_product_attention.default")
def attention(
    ctx: Importer, node: TorchNode, q: Value, k: Value, v: Value, mask: Value | None = None,
    dropout: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:  # fmt: skip
    if enable_gqa:
        k, v = (repeated_heads(ctx, x, q) for x in (k, v))
    return cast(ctx, attended(ctx, q, k, v, mask, is_causal, scale, dropout), node.output.dtype)


@aten("aten._scaled_dot_product_flash_attention_for_cpu.default")
def flash_attention(
    ctx: Importer, node: TorchNode, q: Value, k: Value, v: Value, dropout: float = 0.0,
    is_causal: bool = False, *, attn_mask: Value | None = None, scale: float | None = None,
) -> tuple[Value, None]:  # fmt: skip
    made = attention(ctx, node, q, k, v, attn_mask, dropout, is_causal, scale=scale)
    return made, None


def repeated_heads(ctx: Importer, x: Value, q: Value) -> Value:
    """Each head of keys or values once for every head of queries that reads it."""
    *lead, heads, rows, width = x.shape
    each = tidy(ctx, q.shape[-3] // heads)
    if arith.is_const(each, 1):
        return x
    column = reshape(ctx, x, (*lead, heads, 1, rows, width))
    wide = ctx.g.add("expand", [column], shape=(*lead, heads, each, rows, width))
    return reshape(ctx, wide, (*lead, q.shape[-3], rows, width))


def attended(
    ctx: Importer, q: Value, k: Value, v: Value, mask: Value | None, is_causal: bool,
    scale: float | None, dropout: float = 0.0,
) -> Value:  # fmt: skip
    """softmax(q·kᵀ · scale + mask) · v. Keys and values keep their storage type in the products."""
    width = arith.as_int(q.shape[-1])
    query = Term(ctx, widened(ctx, q))
    if scale is None and width is None:
        query = query / Term(ctx, ctx.scalar(q.shape[-1], query.dtype)).op("sqrt")
    else:
        query = query * (1 / math.sqrt(max(width or 1, 1)) if scale is None else scale)
    scores = Term(ctx, ctx.g.add("matmul", [query.value, swapped(ctx, k)]))
    masked = with_mask(ctx, scores, mask, is_causal)
    shares = Term(ctx, ctx.g.add("softmax", [masked.value], axis=masked.value.tensor.rank - 1))
    if mask is not None:
        shares = where(masked.equals(-math.inf), shares.lifted(0.0), shares)
    if dropout:
        shares = Term(ctx, dropped(ctx, shares.value, dropout)[0])
    return ctx.g.add("matmul", [shares.value, v])


def with_mask(ctx: Importer, scores: Term, mask: Value | None, is_causal: bool) -> Term:
    if is_causal:
        rows, columns = scores.value.shape[-2:]
        row = reshape(ctx, positions(ctx, rows), (rows, 1))
        seen = Term(ctx, row) >= Term(ctx, positions(ctx, columns))
        scores = where(seen, scores, -math.inf)
    if mask is None:
        return scores
    if mask.dtype.is_bool:
        return where(Term(ctx, mask), scores, -math.inf)
    return scores + Term(ctx, cast(ctx, mask, scores.dtype))

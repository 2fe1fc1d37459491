"""softmax(scale · Q·Kᵀ + mask) · V, the common part of com.microsoft's attention operators.

In: heads, (batch, heads, rows, size), and masks that broadcast to the scores. Out: the heads'
results, or merged, (batch, rows, heads · size). Called by attention.py and group_query.py. The
nodes have the structure that passes/match_attention.py makes one kernel of.
"""

from __future__ import annotations

import math

from ingot.arith import expr as arith
from ingot.frontends.common.elements import cast, reshape, scalar, tidy
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.contrib.checks import float_attr
from ingot.frontends.onnx.registry import Importer, OnnxNode
from ingot.graph.ir import Value
from ingot.ops.common import wide_dtype


def split_heads(ctx: Importer, node: OnnxNode, x: Value, heads: int) -> Value:
    """(batch, rows, heads · size) → (batch, heads, rows, size)"""
    batch, rows, hidden = x.shape
    number = arith.as_int(hidden)
    if number is not None and number % heads:
        raise bad_model(node, f"{x.type} does not split into {heads} heads")
    split = reshape(ctx, x, (batch, rows, heads, tidy(ctx, hidden // heads)))
    return ctx.g.add("transpose", [split], perm=(0, 2, 1, 3))


def merge_heads(ctx: Importer, x: Value) -> Value:
    """(batch, heads, rows, size) → (batch, rows, heads · size)"""
    batch, heads, rows, size = x.shape
    moved = ctx.g.add("transpose", [x], perm=(0, 2, 1, 3))
    return reshape(ctx, moved, (batch, rows, heads * size))


def scale_of(ctx: Importer, node: OnnxNode, size: arith.Expr) -> float:
    """The attribute `scale`, or 1 / sqrt(size of a head)."""
    given = float_attr(node, "scale", 0.0)
    number = arith.as_int(tidy(ctx, size))
    if given:
        return given
    if not number:
        raise ctx.unsupported(node, f"heads of dynamic size {size}", "give the attribute scale")
    return 1 / math.sqrt(number)


def scores_of(ctx: Importer, q: Value, k: Value, scale: float) -> Value:
    """scale · Q·Kᵀ in f32 or wider"""
    rank = k.tensor.rank
    perm = (*range(rank - 2), rank - 1, rank - 2)
    scores = ctx.g.add("matmul", [q, ctx.g.add("transpose", [k], perm=perm)])
    scores = cast(ctx, scores, wide_dtype(scores.dtype))
    return ctx.g.add("mul", [scores, scalar(ctx, scale, scores.dtype)])


def masked(ctx: Importer, scores: Value, *masks: Value | None) -> Value:
    for mask in masks:
        if mask is not None:
            scores = ctx.g.add("add", [scores, cast(ctx, mask, scores.dtype)])
    return scores


def weighted(ctx: Importer, scores: Value, v: Value) -> tuple[Value, Value]:
    """softmax(scores) and its product with V"""
    weights = ctx.g.add("softmax", [scores], axis=-1)
    return weights, ctx.g.add("matmul", [cast(ctx, weights, v.dtype), v])

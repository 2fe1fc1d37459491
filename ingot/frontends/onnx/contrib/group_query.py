"""Converter of com.microsoft's GroupQueryAttention: causal attention with a cache, where several
heads of Q read one head of K and V.

In: ONNX nodes. Out: the new keys and values spliced into the cache (ops/splice_rows.py), masks by
the length of each sequence, scores. Called by walker. `seqlens_k` has the length of each sequence,
less one; sequence b had max(seqlens_k[b] + 1 - rows, 0) rows before, which is right for a first
prompt that is padded on the right, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import cast, indices, reshape, scalar, tidy
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.contrib.checks import (
    MICROSOFT,
    count_attr,
    float_attr,
    has_output,
    int_attr,
    no_operand,
)
from ingot.frontends.onnx.contrib.masks import LOWEST, added, counting
from ingot.frontends.onnx.contrib.rotary import last, positions_from, rotated, table_rows
from ingot.frontends.onnx.contrib.scores import (
    masked,
    merge_heads,
    scale_of,
    scores_of,
    split_heads,
)
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value
from ingot.ops.common import same_dim


@dataclass(frozen=True)
class Group:
    """Numbers of heads, and the rows of each sequence before this call: i32[batch]."""

    heads: int
    kv_heads: int
    used: Value

    @property
    def each(self) -> int:
        return self.heads // self.kv_heads


@onnx_op("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(ctx: Importer, node: OnnxNode) -> Sequence[Value | None]:
    refuse(ctx, node)
    heads, kv_heads = count_attr(node, "num_heads"), count_attr(node, "kv_num_heads")
    if heads % kv_heads:
        raise bad_model(node, f"{heads} heads do not share {kv_heads} heads of keys")
    q, k, v = given_heads(ctx, node, heads, kv_heads)
    group = Group(heads, kv_heads, rows_before(ctx, node, q))
    q, k = normalised(ctx, node, q, 14), normalised(ctx, node, k, 15)
    q, k = turned(ctx, node, group, q, k)
    size = present_size(ctx, node, q)
    present = [spliced(ctx, node, group, new, 3 + i, size) for i, new in enumerate((k, v))]
    y, shown = attended(ctx, node, group, q, *present)
    return [y, *present, shown]


def refuse(ctx: Importer, node: OnnxNode) -> None:
    if int_attr(node, "sliding_window_cache", 0):
        raise ctx.unsupported(node, "a cache of the window's size, sliding_window_cache")
    for index, what in ((12, "a quantised cache"), (13, "a quantised cache")):
        no_operand(ctx, node, index, what)


def given_heads(
    ctx: Importer, node: OnnxNode, heads: int, kv_heads: int
) -> tuple[Value, Value, Value]:
    """Q, K and V as (batch, heads, rows, size); without a key the query has all three."""
    query, key = ctx.value(node, 0), ctx.optional(node, 1)
    if key is not None:
        k, v = (split_heads(ctx, node, ctx.value(node, i), kv_heads) for i in (1, 2))
        return split_heads(ctx, node, query, heads), k, v
    split = split_heads(ctx, node, query, heads + 2 * kv_heads)
    batch, _, rows, size = split.shape
    starts, counts = (0, heads, heads + kv_heads), (heads, kv_heads, kv_heads)
    q, k, v = (
        ctx.g.add("slice", [split], starts=(0, start, 0, 0), steps=(1, 1, 1, 1),
                  sizes=(batch, arith.Const(count), rows, size))
        for start, count in zip(starts, counts)
    )  # fmt: skip
    return q, k, v


def rows_before(ctx: Importer, node: OnnxNode, q: Value) -> Value:
    lengths = cast(ctx, reshape(ctx, ctx.value(node, 5), (q.shape[0],)), dtypes.i32)
    rows = cast(ctx, ctx.g.add("index_tensor", [], values=(q.shape[2] - 1,), shape=()), dtypes.i32)
    return ctx.g.add("max", [ctx.g.add("sub", [lengths, rows]), scalar(ctx, 0, dtypes.i32)])


def normalised(ctx: Importer, node: OnnxNode, x: Value, index: int) -> Value:
    """RMS normalisation of each head, if there is a weight."""
    weight = ctx.optional(node, index)
    if weight is None:
        return x
    epsilon = float_attr(node, "qk_norm_epsilon", 1e-6)
    return ctx.g.add("rms_norm", [x, weight], axis=3, epsilon=epsilon)


def turned(ctx: Importer, node: OnnxNode, group: Group, q: Value, k: Value) -> tuple[Value, Value]:
    """Rotary embeddings of the new rows, at the given positions or behind the rows before."""
    if not int_attr(node, "do_rotary", 0):
        return q, k
    given = ctx.optional(node, 9)
    length = q.shape[2]
    places = positions_from(ctx, group.used, length) if given is None else indices(ctx, given)
    cos, sin = (table_rows(ctx, ctx.value(node, i), places, axis=1) for i in (7, 8))
    is_interleaved = bool(int_attr(node, "rotary_interleaved", 0))
    return rotated(ctx, q, cos, sin, is_interleaved), rotated(ctx, k, cos, sin, is_interleaved)


def present_size(ctx: Importer, node: OnnxNode, q: Value) -> arith.Expr:
    """Rows of the present: those of the past's buffer, or all rows, whichever are more."""
    past, rows = ctx.optional(node, 3), q.shape[2]
    if past is None:
        return rows
    (total,) = ctx.dims(node, 6)
    capacity = past.shape[2]
    return tidy(ctx, arith.maximum(capacity, total))


def spliced(
    ctx: Importer, node: OnnxNode, group: Group, new: Value, index: int, size: arith.Expr
) -> Value:
    past = ctx.optional(node, index)
    if past is None:
        return new
    return ctx.g.add("splice_rows", [past, new, group.used], size=size)


# --- scores -------------------------------------------------------------------------------------


def attended(
    ctx: Importer, node: OnnxNode, group: Group, q: Value, k: Value, v: Value
) -> tuple[Value, Value | None]:
    """The result (batch, rows, hidden), and the scores or weights if the node outputs them."""
    batch, _, rows, size = q.shape
    keys, scale = k.shape[2], scale_of(ctx, node, size)
    grouped = (batch, group.kv_heads, group.each)
    if group.each > 1:
        q = reshape(ctx, q, (*grouped, rows, size))
        k, v = (reshape(ctx, x, (*x.shape[:2], 1, *x.shape[2:])) for x in (k, v))
    scores = capped(ctx, scores_of(ctx, q, k, scale), float_attr(node, "softcap", 0.0))
    bias = bias_of(ctx, node, group, keys)
    hidden = seen_mask(ctx, node, group, rows, keys)
    if group.each > 1:
        hidden = reshape(ctx, hidden, (*hidden.shape[:2], 1, *hidden.shape[2:]))
    biased = masked(ctx, scores, bias)
    scores = masked(ctx, biased, hidden)
    if has_sink(ctx, node):
        weights = with_sink(ctx, node, group, scores)
    else:
        weights = ctx.g.add("softmax", [scores], axis=-1)
    y = ctx.g.add("matmul", [cast(ctx, weights, v.dtype), v])
    merged = merge_heads(ctx, reshape(ctx, y, (batch, group.heads, rows, v.shape[-1])))
    which = int_attr(node, "qk_output", 0)
    if not which or not has_output(node, 3):
        return merged, None
    zero = scalar(ctx, 0, hidden.dtype)
    seen = ctx.g.add("where", [ctx.g.add("eq", [hidden, zero]), biased, zero])
    return merged, shown(ctx, node, group, seen if which == 1 else weights)


def capped(ctx: Importer, scores: Value, cap: float) -> Value:
    """cap · tanh(scores / cap)"""
    if not cap:
        return scores
    number = scalar(ctx, cap, scores.dtype)
    inner = ctx.g.add("tanh", [ctx.g.add("div", [scores, number])])
    return ctx.g.add("mul", [inner, number])


def bias_of(ctx: Importer, node: OnnxNode, group: Group, keys: arith.Expr) -> Value | None:
    """attention_bias has the columns of all rows so far; a cache may have more."""
    bias = ctx.optional(node, 10)
    if bias is None:
        return None
    b, n, s, t = bias.shape
    if not same_dim(tidy(ctx, t), tidy(ctx, keys)):
        missing = tidy(ctx, keys - t)
        zero = scalar(ctx, 0, bias.dtype)
        bias = ctx.g.add(
            "pad", [bias, zero], before=(0, 0, 0, 0), after=(0, 0, 0, missing), mode="constant"
        )
    if group.each == 1:
        return bias
    per_head = arith.as_int(n) != 1
    split = (group.kv_heads, group.each) if per_head else (1, 1)
    return reshape(ctx, bias, (b, *split, s, keys))


def seen_mask(
    ctx: Importer, node: OnnxNode, group: Group, rows: arith.Expr, keys: arith.Expr
) -> Value:
    """(batch, 1, rows, keys): row i of sequence b sees the keys up to used[b] + i, of which a
    window may be the last ones only; without `causal`, all keys of the sequence."""
    columns, g = counting(ctx, keys), ctx.g
    place = positions_from(ctx, group.used, rows)
    place = reshape(ctx, place, (*place.shape[:1], 1, place.shape[1], 1))
    if not int_attr(node, "causal", 1):
        end = g.add("add", [group.used, cast(ctx, _size(ctx, rows), dtypes.i32)])
        ends = reshape(ctx, end, (*end.shape, 1, 1, 1))
        return added(ctx, g.add("lt", [columns, ends]), LOWEST)
    seen = g.add("le", [columns, place])
    window = int_attr(node, "local_window_size", -1)
    if window >= 0:
        first = g.add("sub", [place, scalar(ctx, window, dtypes.i32)])
        seen = g.add("and", [seen, g.add("gt", [columns, first])])
    return added(ctx, seen, LOWEST)


def _size(ctx: Importer, size: arith.Expr) -> Value:
    return ctx.g.add("index_tensor", [], values=(size,), shape=())


def has_sink(ctx: Importer, node: OnnxNode) -> bool:
    return ctx.optional(node, 11) is not None or int_attr(node, "smooth_softmax", -1) == 1


def with_sink(ctx: Importer, node: OnnxNode, group: Group, scores: Value) -> Value:
    """exp(x) / (Σ exp(x) + exp(sink)); the sink of smooth_softmax is 0."""
    given, g = ctx.optional(node, 11), ctx.g
    sink = scalar(ctx, 0, scores.dtype)
    if given is not None:
        split = (group.kv_heads, group.each) if group.each > 1 else (group.heads,)
        sink = reshape(ctx, cast(ctx, given, scores.dtype), (*split, 1, 1))
    most = g.add("max", [g.add("reduce_max", [scores], axes=(-1,), keepdims=True), sink])
    power = g.add("exp", [g.add("sub", [scores, most])])
    total = g.add("reduce_sum", [power], axes=(-1,), keepdims=True)
    total = g.add("add", [total, g.add("exp", [g.add("sub", [sink, most])])])
    return g.add("div", [power, total])


def shown(ctx: Importer, node: OnnxNode, group: Group, chosen: Value) -> Value:
    """Output 3: scores or weights of all heads, of the rows so far."""
    batch, rows, keys = chosen.shape[0], chosen.shape[-2], chosen.shape[-1]
    whole = reshape(ctx, chosen, (batch, group.heads, rows, keys))
    if ctx.optional(node, 3) is not None:
        (total,) = ctx.dims(node, 6)
        whole = last(ctx, whole, arith.Const(0), total)
    return cast(ctx, whole, ctx.value(node, 0).dtype)

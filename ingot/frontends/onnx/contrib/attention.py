"""Converters of com.microsoft's Attention, QAttention, MultiHeadAttention and
DecoderMaskedMultiHeadAttention.

In: ONNX nodes. Out: projections, heads, masks (masks.py) and scores (scores.py). Called by walker.
A past is concatenated in front of the new keys and values; the present is what was attended to.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import cast, reshape, tidy
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.contrib.checks import (
    MICROSOFT,
    count_attr,
    float_attr,
    has_output,
    int_attr,
    no_operand,
    rank_of,
)
from ingot.frontends.onnx.contrib.fused import part_of
from ingot.frontends.onnx.contrib.masks import Sizes, both, causal_mask, padding_mask
from ingot.frontends.onnx.contrib.scores import (
    masked,
    merge_heads,
    scale_of,
    scores_of,
    split_heads,
    weighted,
)
from ingot.frontends.onnx.quant import scales
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value

FILTER_VALUE = -10000.0  # the documented default of mask_filter_value

# --- Attention: the projection is part of it ----------------------------------------------------


@onnx_op("Attention", domain=MICROSOFT)
def attention(ctx: Importer, node: OnnxNode) -> Sequence[Value | None]:
    x, weights, bias = ctx.value(node, 0), ctx.value(node, 1), ctx.optional(node, 2)
    rank_of(node, x, 3)
    no_operand(ctx, node, 6, "a past that shares its buffer with the present")
    projected = ctx.g.add("matmul", [x, weights])
    projected = projected if bias is None else ctx.g.add("add", [projected, bias])
    return self_attention(ctx, node, projected, mask=3, past=4, bias=5)


@onnx_op("QAttention", domain=MICROSOFT)
def quantised_attention(ctx: Importer, node: OnnxNode) -> Sequence[Value | None]:
    """The projection is an exact integer GEMM, dequantised with one multiplication."""
    x, weights, bias = (ctx.value(node, i) for i in range(3))
    zeros = [ctx.optional(node, i) for i in (6, 7)]
    flat = [None if z is None or z.shape not in ((), (1,)) else z for z in zeros]
    zeros = [z if f is None else reshape(ctx, f, ()) for z, f in zip(zeros, flat)]
    total = ctx.g.add("matmul_integer", [x, weights, *zeros])
    factor = scales(ctx, [ctx.value(node, 3), ctx.value(node, 4)])
    real = ctx.g.add("mul", [cast(ctx, total, dtypes.f32), factor])
    projected = cast(ctx, ctx.g.add("add", [real, cast(ctx, bias, dtypes.f32)]), bias.dtype)
    return self_attention(ctx, node, projected, mask=5, past=8, bias=None)


def self_attention(
    ctx: Importer, node: OnnxNode, projected: Value, mask: int, past: int, bias: int | None
) -> Sequence[Value | None]:
    """Attention of Q, K and V, concatenated in `projected`; the others are operands' positions."""
    if int_attr(node, "do_rotary", 0) or int_attr(node, "past_present_share_buffer", 0):
        raise ctx.unsupported(node, "rotary embeddings, or a buffer shared by past and present")
    heads = count_attr(node, "num_heads")
    q, k, v = (split_heads(ctx, node, part, heads) for part in projections(ctx, node, projected))
    before = ctx.optional(node, past)
    if before is not None:
        k, v = (with_past(ctx, half_of(ctx, before, i), new) for i, new in enumerate((k, v)))
    present = stacked(ctx, k, v) if has_output(node, 1) else None
    extra = None if bias is None else ctx.optional(node, bias)
    _, y = attended(ctx, node, (q, k, v), ctx.optional(node, mask), extra)
    return [merge_heads(ctx, y), present]


def projections(ctx: Importer, node: OnnxNode, x: Value) -> list[Value]:
    """Q, K and V, of the sizes `qkv_hidden_sizes`, else of equal sizes."""
    sizes = node.attr("qkv_hidden_sizes") or [tidy(ctx, x.shape[-1] // 3)] * 3
    if len(sizes) != 3:
        raise bad_model(node, f"qkv_hidden_sizes {sizes} are not three")
    found: list[Value] = []
    start: arith.Expr = arith.Const(0)
    for size in map(arith.wrap, sizes):
        shape = (*x.shape[:-1], size)
        found.append(ctx.g.add("slice", [x], starts=(0, 0, start), sizes=shape, steps=(1, 1, 1)))
        start = tidy(ctx, start + size)
    return found


def half_of(ctx: Importer, past: Value, index: int) -> Value:
    """Keys or values of (2, batch, heads, rows, size)."""
    shape = past.shape[1:]
    starts = (index, 0, 0, 0, 0)
    one = ctx.g.add("slice", [past], starts=starts, sizes=(arith.Const(1), *shape), steps=(1,) * 5)
    return reshape(ctx, one, shape)


def with_past(ctx: Importer, past: Value, new: Value) -> Value:
    return ctx.g.add("concat", [past, new], axis=2)


def stacked(ctx: Importer, k: Value, v: Value) -> Value:
    return ctx.g.add("concat", [reshape(ctx, x, (1, *x.shape)) for x in (k, v)], axis=0)


def attended(
    ctx: Importer, node: OnnxNode, heads: tuple[Value, Value, Value], mask: Value | None,
    bias: Value | None,
) -> tuple[Value, Value]:  # fmt: skip
    """The weights softmax(scores), and each head's result."""
    q, k, v = heads
    sizes = Sizes(q.shape[0], q.shape[2], k.shape[2])
    filter_value = float_attr(node, "mask_filter_value", FILTER_VALUE)
    hidden = None if mask is None else padding_mask(ctx, node, mask, sizes, filter_value)
    if int_attr(node, "unidirectional", 0):
        hidden = both(ctx, hidden, causal_mask(ctx, sizes))
    scores = scores_of(ctx, q, k, scale_of(ctx, node, q.shape[3]))
    return weighted(ctx, masked(ctx, scores, hidden, bias), v)


# --- MultiHeadAttention: Q, K and V are given ---------------------------------------------------


@onnx_op("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(ctx: Importer, node: OnnxNode) -> Sequence[Value | None]:
    no_operand(ctx, node, 8, "a past that shares its buffer with the present")
    no_operand(ctx, node, 9, "the beams' cache indirection")
    q, k, v = given_heads(ctx, node, bias=3)
    past = [ctx.optional(node, i) for i in (6, 7)]
    k, v = (new if old is None else with_past(ctx, old, new) for old, new in zip(past, (k, v)))
    weights, y = attended(ctx, node, (q, k, v), ctx.optional(node, 4), ctx.optional(node, 5))
    return [merge_heads(ctx, y), k, v, cast(ctx, weights, q.dtype)]


@onnx_op("DecoderMaskedMultiHeadAttention", domain=MICROSOFT)
def decoder_attention(ctx: Importer, node: OnnxNode) -> Sequence[Value | None]:
    """One new row. Heads as keys and values are those of another sequence, which has no past."""
    no_operand(ctx, node, 9, "the beams' cache indirection")
    q, k, v = given_heads(ctx, node, bias=10)
    key = ctx.optional(node, 1)
    present = [k, v]
    if key is None or rank_of(node, key, 3, 4) == 3:
        made = [with_cache(ctx, node, new, i) for i, new in zip((5, 6), (k, v))]
        present, (k, v) = [whole for whole, _ in made], (used for _, used in made)
    weights, y = attended(ctx, node, (q, k, v), ctx.optional(node, 3), ctx.optional(node, 4))
    return [merge_heads(ctx, y), *present, cast(ctx, weights, q.dtype)]


def with_cache(ctx: Importer, node: OnnxNode, new: Value, index: int) -> tuple[Value, Value]:
    """The present and the part of it that is in use. If past and present share a buffer, the new
    row is put behind the first `past_sequence_length` (operand 7) of its rows."""
    past = ctx.optional(node, index)
    if past is None:
        return new, new
    if not int_attr(node, "past_present_share_buffer", 0):
        whole = with_past(ctx, past, new)
        return whole, whole
    (before,) = ctx.dims(node, 7)
    whole = ctx.g.add("write_rows", [past, new], axis=2, at=before)
    batch, heads, _, size = whole.shape
    sizes = (batch, heads, tidy(ctx, before + new.shape[2]), size)
    used = ctx.g.add("slice", [whole], starts=(0, 0, 0, 0), sizes=sizes, steps=(1, 1, 1, 1))
    return whole, used


def given_heads(ctx: Importer, node: OnnxNode, bias: int) -> tuple[Value, Value, Value]:
    """Q, K and V as (batch, heads, rows, size), of any of their forms:

    query (batch, rows, heads, 3, size)                     all three packed
    query (batch, rows, hidden), no key                     all three concatenated
    key (batch, rows, heads, 2, size)                       keys and values packed
    key and value (batch, heads, rows, size)                heads already, without a bias
    key and value (batch, rows, hidden)
    """
    heads, query, key = count_attr(node, "num_heads"), ctx.value(node, 0), ctx.optional(node, 1)
    biases = bias_parts(ctx, node, bias)
    if key is None and query.tensor.rank == 3:
        parts = [with_bias(ctx, p, b) for p, b in zip(projections(ctx, node, query), biases)]
        q, k, v = (split_heads(ctx, node, part, heads) for part in parts)
        return q, k, v
    if key is None:
        rank_of(node, query, 5)
        q, k, v = (packed_heads(ctx, node, query, i, biases[i]) for i in range(3))
        return q, k, v
    rank_of(node, query, 3)
    q = split_heads(ctx, node, with_bias(ctx, query, biases[0]), heads)
    if rank_of(node, key, 3, 4, 5) == 5:
        k, v = (packed_heads(ctx, node, key, i, biases[i + 1]) for i in range(2))
    elif key.tensor.rank == 4:
        k, v = key, ctx.value(node, 2)
    else:
        rows = (with_bias(ctx, x, b) for x, b in zip((key, ctx.value(node, 2)), biases[1:]))
        k, v = (split_heads(ctx, node, x, heads) for x in rows)
    return q, k, v


def packed_heads(ctx: Importer, node: OnnxNode, x: Value, index: int, bias: Value | None) -> Value:
    """(batch, rows, heads, parts, size) → part `index` as (batch, heads, rows, size)"""
    part = part_of(ctx, x, index)
    if bias is not None:
        part = ctx.g.add("add", [part, reshape(ctx, bias, part.shape[2:])])
    return ctx.g.add("transpose", [part], perm=(0, 2, 1, 3))


def with_bias(ctx: Importer, x: Value, bias: Value | None) -> Value:
    return x if bias is None else ctx.g.add("add", [x, bias])


def bias_parts(ctx: Importer, node: OnnxNode, index: int) -> list[Value | None]:
    """The biases of Q, K and V, of which V's may have another size."""
    bias = ctx.optional(node, index)
    if bias is None:
        return [None, None, None]
    hidden = hidden_size(ctx, node, bias)
    found: list[Value | None] = []
    for n, size in enumerate((hidden, hidden, tidy(ctx, bias.shape[0] - 2 * hidden))):
        start = tidy(ctx, hidden * n)
        found.append(ctx.g.add("slice", [bias], starts=(start,), sizes=(size,), steps=(1,)))
    return found


def hidden_size(ctx: Importer, node: OnnxNode, bias: Value) -> arith.Expr:
    query, key = ctx.value(node, 0), ctx.optional(node, 1)
    if key is None:
        return tidy(ctx, bias.shape[0] // 3)
    return tidy(ctx, query.shape[2])

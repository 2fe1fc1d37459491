"""Converters of com.microsoft's normalisations: with a residual, of embeddings, of groups.

In: ONNX nodes. Out: layer_norm, rms_norm and group_norm nodes. Called by walker. The operators that
ONNX Runtime writes into the standard domain (SimplifiedLayerNormalization) are here too.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import cast, indices, reshape, scalar
from ingot.frontends.onnx.common import axis_of
from ingot.frontends.onnx.contrib.checks import (
    MICROSOFT,
    count_attr,
    float_attr,
    has_output,
    int_attr,
    rank_of,
)
from ingot.frontends.onnx.contrib.fused import channels_first, channels_last
from ingot.frontends.onnx.norm import layer_norm, statistics, widest
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value
from ingot.ops.common import wide_dtype

onnx_op("LayerNormalization", domain=MICROSOFT)(layer_norm)


def rms_statistic(ctx: Importer, x: Value, axis: int, epsilon: float) -> Value:
    """1 / sqrt(mean(x²) + epsilon) of each row, in f32 or wider."""
    wide = cast(ctx, x, wide_dtype(x.dtype))
    axes = tuple(range(axis, x.tensor.rank))
    square = ctx.g.add("mul", [wide, wide])
    mean = ctx.g.add("reduce_mean", [square], axes=axes, keepdims=True)
    root = ctx.g.add("sqrt", [ctx.g.add("add", [mean, scalar(ctx, epsilon, wide.dtype)])])
    return ctx.g.add("reciprocal", [root])


@onnx_op("SimplifiedLayerNormalization")
@onnx_op("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_layer_norm(ctx: Importer, node: OnnxNode) -> Sequence[Value | None]:
    """RMS normalisation; the result has the scale's type."""
    x, scale = ctx.value(node, 0), ctx.value(node, 1)
    axis = axis_of(node, int_attr(node, "axis", -1), x.tensor.rank)
    epsilon = float_attr(node, "epsilon", 1e-5)
    operands = [cast(ctx, v, widest([x, scale])) for v in (x, scale)]
    y = ctx.g.add("rms_norm", operands, axis=axis, epsilon=epsilon)
    result: list[Value | None] = [cast(ctx, y, scale.dtype)]
    if has_output(node, 1):
        result.append(rms_statistic(ctx, x, axis, epsilon))
    return result


def residual_sum(ctx: Importer, node: OnnxNode, bias: int) -> Value:
    """x + skip + bias, in x's shape."""
    x, skip, extra = ctx.value(node, 0), ctx.value(node, 1), ctx.optional(node, bias)
    total = ctx.g.add("add", [x, skip])
    return total if extra is None else ctx.g.add("add", [total, extra])


@onnx_op("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(ctx: Importer, node: OnnxNode) -> Sequence[Value | None]:
    total, epsilon = residual_sum(ctx, node, bias=4), float_attr(node, "epsilon", 1e-12)
    axis = total.tensor.rank - 1
    operands = [total, ctx.value(node, 2), ctx.optional(node, 3)]
    y = ctx.g.add("layer_norm", operands, axis=axis, epsilon=epsilon)
    wants = has_output(node, 1) or has_output(node, 2)
    found = statistics(ctx, total, axis, epsilon) if wants else [None, None]
    return [y, *found, total]


@onnx_op("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_rms_norm(ctx: Importer, node: OnnxNode) -> Sequence[Value | None]:
    total, epsilon = residual_sum(ctx, node, bias=3), float_attr(node, "epsilon", 1e-12)
    axis = total.tensor.rank - 1
    y = ctx.g.add("rms_norm", [total, ctx.value(node, 2)], axis=axis, epsilon=epsilon)
    inverse = rms_statistic(ctx, total, axis, epsilon) if has_output(node, 2) else None
    return [y, None, inverse, total]


@onnx_op("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_norm(ctx: Importer, node: OnnxNode) -> Sequence[Value | None]:
    """layer_norm(word + position + segment embeddings); also the number of ones of each row of the
    mask, and the sum before the normalisation."""
    ids = ctx.value(node, 0)
    rank_of(node, ids, 2)
    total = ctx.g.add("gather", [ctx.value(node, 2), indices(ctx, ids)], axis=0)
    total = ctx.g.add("add", [total, position_rows(ctx, node, ids)])
    segments, table = ctx.optional(node, 1), ctx.optional(node, 4)
    if segments is not None and table is not None:
        rows = ctx.g.add("gather", [table, indices(ctx, segments)], axis=0)
        total = ctx.g.add("add", [total, rows])
    operands = [total, ctx.value(node, 5), ctx.value(node, 6)]
    y = ctx.g.add("layer_norm", operands, axis=2, epsilon=float_attr(node, "epsilon", 1e-12))
    index = mask_lengths(ctx, node, ids) if has_output(node, 1) else None
    return [y, index, total]


def position_rows(ctx: Importer, node: OnnxNode, ids: Value) -> Value:
    """The embeddings of the given positions, or the first rows of the table."""
    table, positions = ctx.value(node, 3), ctx.optional(node, 8)
    if positions is not None:
        return ctx.g.add("gather", [table, indices(ctx, positions)], axis=0)
    sizes = (ids.shape[1], table.shape[1])
    return ctx.g.add("slice", [table], starts=(0, 0), sizes=sizes, steps=(1, 1))


def mask_lengths(ctx: Importer, node: OnnxNode, ids: Value) -> Value:
    mask = ctx.optional(node, 7)
    if mask is None:
        return ctx.g.add("fill", [scalar(ctx, 0, dtypes.i32)], shape=(ids.shape[0],))
    is_one = cast(ctx, ctx.g.add("eq", [mask, scalar(ctx, 1, mask.dtype)]), dtypes.i32)
    return ctx.g.add("reduce_sum", [is_one], axes=(1,), keepdims=False)


@onnx_op("GroupNorm", domain=MICROSOFT)
def group_norm(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return [normalised_groups(ctx, node, ctx.value(node, 0))]


@onnx_op("SkipGroupNorm", domain=MICROSOFT)
def skip_group_norm(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """The skip may be (N, C): one value for each image and channel."""
    x, skip, bias = ctx.value(node, 0), ctx.value(node, 3), ctx.optional(node, 4)
    is_last = int_attr(node, "channels_last", 1)
    if skip.tensor.rank == 2:
        n, c = skip.shape
        ones = (arith.Const(1),) * (x.tensor.rank - 2)
        skip = reshape(ctx, skip, (n, *ones, c) if is_last else (n, c, *ones))
    total = ctx.g.add("add", [x, skip])
    if bias is not None:
        tail = () if is_last else (1,) * (x.tensor.rank - 2)
        total = ctx.g.add("add", [total, reshape(ctx, bias, (*bias.shape, *tail))])
    return [normalised_groups(ctx, node, total), total]


def normalised_groups(ctx: Importer, node: OnnxNode, x: Value) -> Value:
    is_last = int_attr(node, "channels_last", 1)
    groups, epsilon = count_attr(node, "groups"), float_attr(node, "epsilon", 1e-5)
    params = [cast(ctx, ctx.value(node, i), x.dtype) for i in (1, 2)]
    first = channels_first(ctx, x) if is_last else x
    y = ctx.g.add("group_norm", [first, *params], groups=groups, epsilon=epsilon)
    y = ctx.g.add("silu", [y]) if int_attr(node, "activation", 0) else y
    return channels_last(ctx, y) if is_last else y

"""ONNX converters of the norm family: batch, layer, RMS, group, instance, LRN, Lp, mean-variance.

In: ONNX nodes. Out: nodes of ops/norm.py, or reductions and divisions. Called by walker.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot import dtypes
from ingot.dtypes import DType
from ingot.frontends.common.elements import cast, reshape, scalar, tidy
from ingot.frontends.onnx.common import axes_of, axis_of, bad_model
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value
from ingot.ops.common import is_narrow, wide_dtype


def has_output(node: OnnxNode, index: int) -> bool:
    return index < len(node.outputs) and bool(node.outputs[index])


@onnx_op("BatchNormalization")
def batch_norm_old(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return batch_norm_of(ctx, node, is_training=not node.attr("is_test", 0))


@onnx_op("BatchNormalization", since=7)
def batch_norm_by_outputs(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """Statistics among the outputs say that it is training."""
    return batch_norm_of(ctx, node, any(has_output(node, i) for i in range(1, 5)))


@onnx_op("BatchNormalization", since=14)
def batch_norm(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    is_training = bool(node.attr("training_mode", 0))
    if not is_training and any(has_output(node, i) for i in range(1, 3)):
        raise bad_model(node, "it outputs running statistics, and training_mode is 0")
    return batch_norm_of(ctx, node, is_training)


def batch_norm_of(ctx: Importer, node: OnnxNode, is_training: bool) -> list[Value]:
    """Parameters may have a wider type than x: then x is widened, and the result cast back. While
    training, the batch's own statistics take the place of those given, and Y is followed by the
    running averages of both and, before opset 14, by the batch's own."""
    x, *params = (ctx.value(node, i) for i in range(5))
    wide = widest([x, *params])
    wide = wide_dtype(wide) if is_training else wide
    data, *own = (cast(ctx, v, wide) for v in (x, *params))
    epsilon, is_spatial = node.attr("epsilon", 1e-5), bool(node.attr("spatial", 1))
    if x.tensor.rank == 1 and is_spatial:  # no channel axis: a single channel
        data = reshape(ctx, data, (x.shape[0], 1))
    more: list[Value] = []
    if is_training:
        given, own[2:] = own[2:], batch_statistics(ctx, data, is_spatial)
        own[2:] = [reshape(ctx, v, g.shape) for v, g in zip(own[2:], given)]
        more = [average(ctx, *pair, node.attr("momentum", 0.9)) for pair in zip(given, own[2:])]
        more = [cast(ctx, v, params[2].dtype) for v in (*more, *own[2:])]
    if is_spatial:
        y = reshape(ctx, ctx.g.add("batch_norm", [data, *own], epsilon=epsilon), x.shape)
    else:
        y = per_element(ctx, [data, *own], epsilon)
    return [cast(ctx, y, x.dtype), *more][: len(node.outputs)]


def batch_statistics(ctx: Importer, x: Value, is_spatial: bool) -> list[Value]:
    """The mean and the population variance of each channel, or of each element of a sample."""
    g = ctx.g
    axes = tuple(i for i in range(x.tensor.rank) if i != 1) if is_spatial else (0,)
    centred = g.add("sub", [x, g.add("reduce_mean", [x], axes=axes, keepdims=True)])
    square = g.add("mul", [centred, centred])
    return [g.add("reduce_mean", [v], axes=axes, keepdims=False) for v in (x, square)]


def average(ctx: Importer, old: Value, new: Value, momentum: float) -> Value:
    """old · momentum + new · (1 - momentum)"""
    pairs = ((old, momentum), (new, 1 - momentum))
    parts = [ctx.g.add("mul", [v, scalar(ctx, factor, v.dtype)]) for v, factor in pairs]
    return ctx.g.add("add", parts)


def per_element(ctx: Importer, operands: Sequence[Value], epsilon: float) -> Value:
    """spatial=0: statistics for each element of a sample."""
    x, scale, bias, mean, var = operands
    root = ctx.g.add("sqrt", [ctx.g.add("add", [var, scalar(ctx, epsilon, var.dtype)])])
    unit = ctx.g.add("div", [ctx.g.add("sub", [x, mean]), root])
    return ctx.g.add("add", [ctx.g.add("mul", [unit, scale]), bias])


def widest(values: Sequence[Value]) -> DType:
    kinds = {v.dtype for v in values}
    return kinds.pop() if len(kinds) == 1 else max(map(wide_dtype, kinds), key=lambda d: d.bits)


@onnx_op("LayerNormalization")
def layer_norm(ctx: Importer, node: OnnxNode) -> Sequence[Value | None]:
    x, scale, bias = ctx.value(node, 0), ctx.optional(node, 1), ctx.optional(node, 2)
    axis, epsilon = axis_of(node, node.attr("axis", -1), x.tensor.rank), node.attr("epsilon", 1e-5)
    wide = widest([v for v in (x, scale, bias) if v is not None])
    operands = [None if v is None else cast(ctx, v, wide) for v in (x, scale, bias)]
    y = ctx.g.add("layer_norm", operands, axis=axis, epsilon=epsilon)
    result: list[Value | None] = [cast(ctx, y, x.dtype)]
    if has_output(node, 1) or has_output(node, 2):
        result += statistics(ctx, x, axis, epsilon)
    return result


def statistics(ctx: Importer, x: Value, axis: int, epsilon: float) -> list[Value]:
    """The mean and the inverse standard deviation of each row, in f32 or wider."""
    wide = cast(ctx, x, wide_dtype(x.dtype))
    axes = tuple(range(axis, x.tensor.rank))
    mean = ctx.g.add("reduce_mean", [wide], axes=axes, keepdims=True)
    centred = ctx.g.add("sub", [wide, mean])
    square = ctx.g.add("mul", [centred, centred])
    variance = ctx.g.add("reduce_mean", [square], axes=axes, keepdims=True)
    root = ctx.g.add("sqrt", [ctx.g.add("add", [variance, scalar(ctx, epsilon, wide.dtype)])])
    return [mean, ctx.g.add("reciprocal", [root])]


@onnx_op("RMSNormalization")
def rms_norm(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x, scale = ctx.value(node, 0), ctx.value(node, 1)
    wide = widest([x, scale])
    operands = [cast(ctx, v, wide) for v in (x, scale)]
    axis, epsilon = axis_of(node, node.attr("axis", -1), x.tensor.rank), node.attr("epsilon", 1e-5)
    y = ctx.g.add("rms_norm", operands, axis=axis, epsilon=epsilon)
    return [cast(ctx, y, scale.dtype)]


@onnx_op("InstanceNormalization")
def instance_norm(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    operands = [ctx.value(node, i) for i in range(3)]
    return [ctx.g.add("instance_norm", operands, epsilon=node.attr("epsilon", 1e-5))]


@onnx_op("GroupNormalization")
def group_norm_by_group(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """Opset 18: one scale and bias for each group; they are expanded to its channels."""
    x, groups = ctx.value(node, 0), node.attr("num_groups")
    each = tidy(ctx, x.shape[1] // groups)

    def expanded(param: Value) -> Value:
        column = reshape(ctx, param, (groups, 1))
        return reshape(ctx, ctx.g.add("expand", [column], shape=(groups, each)), (x.shape[1],))

    return group_norm_of(ctx, node, x, [expanded(ctx.value(node, i)) for i in (1, 2)])


@onnx_op("GroupNormalization", since=21)
def group_norm(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return group_norm_of(ctx, node, ctx.value(node, 0), [ctx.value(node, i) for i in (1, 2)])


def group_norm_of(
    ctx: Importer, node: OnnxNode, x: Value, params: Sequence[Value]
) -> Sequence[Value]:
    attrs = {"groups": node.attr("num_groups"), "epsilon": node.attr("epsilon", 1e-5)}
    return [ctx.g.add("group_norm", [x, *params], **attrs)]


@onnx_op("LRN")
def local_response_norm(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    attrs = {
        "size": node.attr("size"), "alpha": node.attr("alpha", 1e-4),
        "beta": node.attr("beta", 0.75), "bias": node.attr("bias", 1.0),
    }  # fmt: skip
    if attrs["size"] < 1:
        raise bad_model(node, f"attribute 'size' is {attrs['size']}, not at least 1")
    return [ctx.g.add("lrn", [ctx.value(node, 0)], **attrs)]


@onnx_op("LpNormalization")
def lp_norm(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """x / ‖x‖ along an axis; a zero vector gives zeros."""
    x, p = ctx.value(node, 0), node.attr("p", 2)
    if p not in (1, 2):
        raise bad_model(node, f"attribute 'p' is {p}, not 1 or 2")
    axis = axis_of(node, node.attr("axis", -1), x.tensor.rank)
    size = ctx.g.add(f"reduce_l{p}", [x], axes=(axis,), keepdims=True)
    zero = scalar(ctx, 0, x.dtype)
    empty = ctx.g.add("eq", [size, zero])
    return [ctx.g.add("where", [empty, zero, ctx.g.add("div", [x, size])])]


@onnx_op("MeanVarianceNormalization")
def mean_variance_norm(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """(x - mean) / (standard deviation + 1e-9)"""
    x, g = ctx.value(node, 0), ctx.g
    axes = sorted(axes_of(node, node.attr("axes", [0, 2, 3]), x.tensor.rank))
    wide = cast(ctx, x, dtypes.f32) if is_narrow(x.dtype) else x
    centred = g.add("sub", [wide, g.add("reduce_mean", [wide], axes=axes, keepdims=True)])
    square = g.add("mul", [centred, centred])
    root = g.add("sqrt", [g.add("reduce_mean", [square], axes=axes, keepdims=True)])
    divisor = g.add("add", [root, scalar(ctx, 1e-9, wide.dtype)])
    return [cast(ctx, g.add("div", [centred, divisor]), x.dtype)]

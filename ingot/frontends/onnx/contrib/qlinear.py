"""Converters of com.microsoft's operators on quantised tensors: QLinearAdd and kin, and
QuantizeLinear and DequantizeLinear as this domain defines them.

In: ONNX nodes. Out: dequantised operands, the float operator, quantised again; sums of integers
stay integers. Called by walker. An absent zero point is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import as_scalar, cast, scalar, tidy
from ingot.frontends.onnx.common import axes_of, axis_of, bad_model
from ingot.frontends.onnx.contrib.checks import MICROSOFT, float_attr, int_attr
from ingot.frontends.onnx.contrib.fused import channels_first, channels_last
from ingot.frontends.onnx.conv import centred, conv_attrs
from ingot.frontends.onnx.pool import pool_attrs
from ingot.frontends.onnx.quant import dequantize, quantize, requantized, scales
from ingot.frontends.onnx.registry import Converter, Importer, OnnxNode, onnx_op
from ingot.frontends.onnx.softmax import over_rest, softmax
from ingot.graph.ir import Value

onnx_op("QuantizeLinear", domain=MICROSOFT)(quantize)
onnx_op("DequantizeLinear", domain=MICROSOFT)(dequantize)


def real_operand(ctx: Importer, node: OnnxNode, first: int) -> Value:
    """(x - zero) · scale of the operands first, first + 1 and first + 2."""
    x, scale, zero = (
        ctx.value(node, first),
        ctx.value(node, first + 1),
        ctx.optional(node, first + 2),
    )
    operands = [x, as_scalar(ctx, scale), None if zero is None else as_scalar(ctx, zero)]
    return ctx.g.add("dequantize_linear", operands)


def quantised(ctx: Importer, node: OnnxNode, real: Value, first: int, like: Value) -> Value:
    """round(real / scale) + zero, with the operands first and first + 1, as `like`'s type."""
    scale, zero = ctx.value(node, first), ctx.optional(node, first + 1)
    zero = scalar(ctx, 0, like.dtype) if zero is None else as_scalar(ctx, zero)
    operands = [real, as_scalar(ctx, scale), zero]
    return ctx.g.add("quantize_linear", operands, dtype=like.dtype)


def binary(op: str) -> Converter:
    def convert(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
        a, b = real_operand(ctx, node, 0), real_operand(ctx, node, 3)
        return [quantised(ctx, node, ctx.g.add(op, [a, b]), 6, ctx.value(node, 0))]

    return convert


onnx_op("QLinearAdd", domain=MICROSOFT)(binary("add"))
onnx_op("QLinearMul", domain=MICROSOFT)(binary("mul"))


def unary(function: Callable[[Importer, OnnxNode, Value], Value]) -> Converter:
    def convert(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
        real = function(ctx, node, real_operand(ctx, node, 0))
        return [quantised(ctx, node, real, 3, ctx.value(node, 0))]

    return convert


@unary
def sigmoid(ctx: Importer, node: OnnxNode, x: Value) -> Value:
    return ctx.g.add("sigmoid", [x])


@unary
def leaky_relu(ctx: Importer, node: OnnxNode, x: Value) -> Value:
    return ctx.g.add("leaky_relu", [x], alpha=float_attr(node, "alpha", 0.01))


@unary
def average_pool(ctx: Importer, node: OnnxNode, x: Value) -> Value:
    is_last = int_attr(node, "channels_last", 0)
    first = channels_first(ctx, x) if is_last else x
    with_pads = bool(int_attr(node, "count_include_pad", 0))
    attrs = pool_attrs(ctx, node, first)
    y = ctx.g.add("avg_pool", [first], **attrs, count_include_pad=with_pads)
    return channels_last(ctx, y) if is_last else y


@unary
def reduce_mean(ctx: Importer, node: OnnxNode, x: Value) -> Value:
    axes = sorted(axes_of(node, node.attr("axes") or range(x.tensor.rank), x.tensor.rank))
    return ctx.g.add("reduce_mean", [x], axes=axes, keepdims=bool(int_attr(node, "keepdims", 1)))


onnx_op("QLinearSigmoid", domain=MICROSOFT)(sigmoid)
onnx_op("QLinearLeakyRelu", domain=MICROSOFT)(leaky_relu)
onnx_op("QLinearAveragePool", domain=MICROSOFT)(average_pool)
onnx_op("QLinearReduceMean", domain=MICROSOFT)(reduce_mean)


@onnx_op("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """`opset` says whether the axes from `axis` on are one, as they were before opset 13."""
    x, real = ctx.value(node, 0), real_operand(ctx, node, 0)
    axis = axis_of(node, int_attr(node, "axis", -1), x.tensor.rank)
    is_one = int_attr(node, "opset", 13) < 13
    y = over_rest(ctx, softmax, real, axis) if is_one else softmax(ctx, real, axis)
    return [quantised(ctx, node, y, 3, x)]


@onnx_op("QLinearGlobalAveragePool", domain=MICROSOFT)
def global_average_pool(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """An exact integer sum, requantised with one multiplication."""
    x, zero = ctx.value(node, 0), as_scalar(ctx, ctx.value(node, 2))
    rank = x.tensor.rank
    axes = tuple(range(1, rank - 1) if int_attr(node, "channels_last", 0) else range(2, rank))
    wide = ctx.g.add("sub", [cast(ctx, v, dtypes.i32) for v in (x, zero)])
    total = ctx.g.add("reduce_sum", [wide], axes=axes, keepdims=True)
    size = tidy(ctx, arith.product([x.shape[axis] for axis in axes]))
    count = cast(ctx, ctx.g.add("index_tensor", [], values=(size,), shape=()), dtypes.f32)
    divisor = ctx.g.add("mul", [as_scalar(ctx, ctx.value(node, 3)), count])
    factor = scales(ctx, [as_scalar(ctx, ctx.value(node, 1))], divisor)
    return [requantized(ctx, total, factor, ctx.value(node, 4))]


@onnx_op("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """Operands: the output's scale and zero point, then x, scale and zero point of each tensor."""
    if len(node.inputs) < 5 or (len(node.inputs) - 2) % 3:
        raise bad_model(node, f"{len(node.inputs)} operands are not 2 and 3 for each tensor")
    starts = range(2, len(node.inputs), 3)
    parts = [
        quantised(ctx, node, real_operand(ctx, node, i), 0, ctx.value(node, i)) for i in starts
    ]
    return [
        ctx.g.add("concat", parts, axis=axis_of(node, int_attr(node, "axis"), parts[0].tensor.rank))
    ]


@onnx_op("QLinearWhere", domain=MICROSOFT)
def qlinear_where(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x, y = real_operand(ctx, node, 1), real_operand(ctx, node, 4)
    chosen = ctx.g.add("where", [ctx.value(node, 0), x, y])
    return [quantised(ctx, node, chosen, 7, ctx.value(node, 1))]


@onnx_op("QLinearConv", domain=MICROSOFT)
def qlinear_conv(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """An exact integer convolution; `channels_last` applies to x and y, not to the weights."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (ctx.value(node, i) for i in range(8))
    bias, is_last = ctx.optional(node, 8), int_attr(node, "channels_last", 0)
    x = channels_first(ctx, x) if is_last else x
    operands = [centred(ctx, x, x_zero, per_output=False), centred(ctx, w, w_zero, per_output=True)]
    operands += [] if bias is None else [bias]
    total = ctx.g.add("conv", operands, **conv_attrs(ctx, node, x, w))
    if w_scale.tensor.rank == 1 and w_scale.shape[0] != 1:
        ones = (arith.Const(1),) * (x.tensor.rank - 2)
        w_scale = ctx.g.add("reshape", [w_scale], shape=(w_scale.shape[0], *ones))
    y = requantized(ctx, total, scales(ctx, [x_scale, w_scale], y_scale), y_zero)
    return [channels_last(ctx, y) if is_last else y]


@onnx_op("MulInteger", domain=MICROSOFT)
def mul_integer(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """(a - a_zero) · (b - b_zero) in i32; the operands are a, a_zero, b, b_zero."""
    pairs = [(ctx.value(node, i), ctx.optional(node, i + 1)) for i in (0, 2)]
    return [ctx.g.add("mul", [centred(ctx, x, zero, per_output=False) for x, zero in pairs])]


@onnx_op("ReduceSumInteger", domain=MICROSOFT)
def reduce_sum_integer(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x = ctx.value(node, 0)
    axes = sorted(axes_of(node, node.attr("axes") or range(x.tensor.rank), x.tensor.rank))
    wide = cast(ctx, x, dtypes.i32 if x.dtype is dtypes.i8 else dtypes.TABLE["u32"])
    keepdims = bool(int_attr(node, "keepdims", 1))
    return [ctx.g.add("reduce_sum", [wide], axes=axes, keepdims=keepdims)]

"""Converters of com.microsoft's matmuls of 8-bit integers: QGemm, MatMulIntegerToFloat,
DynamicQuantizeMatMul, MatMulInteger16, and of DynamicQuantizeLSTM.

In: ONNX nodes. Out: exact integer matmuls, then one multiplication by the scales. Called by walker.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import as_scalar, broadcast, cast, reshape, scalar
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.contrib.checks import MICROSOFT, float_attr, int_attr, rank_of
from ingot.frontends.onnx.contrib.masks import counting
from ingot.frontends.onnx.quant import requantized, scales
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.frontends.onnx.rnn import attributes
from ingot.graph.ir import Value
from ingot.graph.types import TensorType
from ingot.ops.rnn_quantized import Point, QuantisedLstm


def flat_if_single(ctx: Importer, x: Value | None) -> Value | None:
    """A tensor of one element as a scalar; others stay."""
    return as_scalar(ctx, x) if x is not None and arith.is_const(x.tensor.numel, 1) else x


def real_product(
    ctx: Importer, operands: Sequence[Value | None], factor: Value, bias: Value | None
) -> Value:
    """(a - a_zero)·(b - b_zero) · factor + bias"""
    a, b, *zeros = operands
    total = ctx.g.add("matmul_integer", [a, b, *(flat_if_single(ctx, z) for z in zeros)])
    real = ctx.g.add("mul", [cast(ctx, total, dtypes.f32), factor])
    return real if bias is None else ctx.g.add("add", [real, cast(ctx, bias, dtypes.f32)])


@onnx_op("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    a, b, a_scale, b_scale = (ctx.value(node, i) for i in range(4))
    zeros = [ctx.optional(node, i) for i in (4, 5)]
    factor = scales(ctx, [as_scalar(ctx, a_scale), b_scale])
    real = real_product(ctx, [a, b, *zeros], factor, ctx.optional(node, 6))
    return [cast(ctx, real, a_scale.dtype)]


@onnx_op("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """The first operand is quantised by its range."""
    b, b_scale, b_zero = ctx.value(node, 1), ctx.value(node, 2), ctx.optional(node, 3)
    a, a_scale, a_zero = ctx.g.add_all("dynamic_quantize_linear", [ctx.value(node, 0)])
    factor = scales(ctx, [a_scale, b_scale])
    return [real_product(ctx, [a, b, a_zero, b_zero], factor, ctx.optional(node, 4))]


@onnx_op("MatMulInteger16", domain=MICROSOFT)
def matmul_integer_16(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return [ctx.g.add("matmul", [cast(ctx, ctx.value(node, i), dtypes.i32) for i in (0, 1)])]


@onnx_op("QGemm", domain=MICROSOFT)
def quantised_gemm(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """alpha · a_scale · b_scale · (A·B + C), quantised if there is a scale of the output."""
    a, a_scale, a_zero, b, b_scale, b_zero = (ctx.value(node, i) for i in range(6))
    rank_of(node, a, 2)
    a = ctx.g.add("transpose", [a], perm=(1, 0)) if int_attr(node, "transA", 0) else a
    b = ctx.g.add("transpose", [b], perm=(1, 0)) if int_attr(node, "transB", 0) else b
    zeros = [flat_if_single(ctx, z) for z in (a_zero, b_zero)]
    total = ctx.g.add("matmul_integer", [a, b, *zeros])
    c, y_scale, y_zero = (ctx.optional(node, i) for i in (6, 7, 8))
    total = total if c is None else ctx.g.add("add", [total, c])
    alpha = scalar(ctx, float_attr(node, "alpha", 1.0), dtypes.f32)
    factor = scales(ctx, [alpha, as_scalar(ctx, a_scale), b_scale], y_scale)
    if y_scale is None:
        return [ctx.g.add("mul", [cast(ctx, total, dtypes.f32), factor])]
    zero = scalar(ctx, 0, dtypes.u8) if y_zero is None else y_zero
    return [requantized(ctx, total, factor, zero)]


@onnx_op("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(ctx: Importer, node: OnnxNode) -> Sequence[Value | None]:
    """Weights are (directions, features, 4 · hidden): transposed, compared with LSTM's."""
    for index in (0, 1, 2, 5, 6):
        same_batch(ctx, node, index)
    x, w, r = (ctx.value(node, i) for i in range(3))
    hidden = node.attr("hidden_size")
    if hidden is not None and r.shape[1] != hidden:
        raise bad_model(node, f"hidden_size {hidden} does not match {r.type}")
    w, r = (ctx.g.add("transpose", [v], perm=(0, 2, 1)) for v in (w, r))
    bias, lens, h0, c0, peephole = (ctx.optional(node, i) for i in range(3, 8))
    attrs = attributes(node, "lstm")
    cell = QuantisedLstm(*(Point(ctx.value(node, i), ctx.value(node, i + 1)) for i in (8, 10)))
    like = TensorType(x.dtype, x.shape)
    operands = [in_use(ctx, x, lens), w, r, bias, lens, h0, c0, peephole]
    return cell.decompose(ctx.g, operands, [like] * 3, attrs)


def same_batch(ctx: Importer, node: OnnxNode, index: int) -> None:
    """The operand has rank 3; a state is as wide as the batch."""
    x, value = ctx.value(node, 0), ctx.optional(node, index)
    if value is None:
        return
    rank_of(node, value, 3)
    if index >= 5:
        broadcast(ctx, x.shape[1:2], value.shape[1:2])


def in_use(ctx: Importer, x: Value, lens: Value | None) -> Value:
    """x with zeros behind the longest sequence, so that they do not widen the range."""
    if lens is None:
        return x
    longest = ctx.g.add("reduce_max", [cast(ctx, lens, dtypes.i32)], axes=(0,), keepdims=False)
    steps = reshape(ctx, counting(ctx, x.shape[0]), (x.shape[0], 1, 1))
    seen = ctx.g.add("lt", [steps, longest])
    return ctx.g.add("where", [seen, x, scalar(ctx, 0, x.dtype)])

"""ONNX converters of the matmul family: MatMul, Gemm, MatMulInteger, QLinearMatMul. (Einsum is in
einsum.py.)

In: ONNX nodes. Out: matmul nodes, transposes, scales and biases. Called by walker.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.frontends.common.elements import cast, reshape, scalar
from ingot.frontends.onnx import einsum
from ingot.frontends.onnx.quant import requantized, scales
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value


@onnx_op("MatMul")
def matmul(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return [ctx.g.add("matmul", [ctx.value(node, 0), ctx.value(node, 1)])]


@onnx_op("Gemm")
def gemm(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """alpha · A·B + beta · C"""
    a, b, c = ctx.value(node, 0), ctx.value(node, 1), ctx.optional(node, 2)
    a = ctx.g.add("transpose", [a], perm=(1, 0)) if node.attr("transA", 0) else a
    b = ctx.g.add("transpose", [b], perm=(1, 0)) if node.attr("transB", 0) else b
    result = scaled(ctx, node, ctx.g.add("matmul", [a, b]), node.attr("alpha", 1.0))
    if c is None or node.attr("beta", 1.0) == 0:
        return [result]
    return [ctx.g.add("add", [result, scaled(ctx, node, c, node.attr("beta", 1.0))])]


def scaled(ctx: Importer, node: OnnxNode, x: Value, factor: float) -> Value:
    if factor == 1:
        return x
    if x.dtype.is_int and factor != int(factor):
        raise ctx.unsupported(node, f"integers cannot be multiplied by {factor}")
    return ctx.g.add("mul", [x, scalar(ctx, factor, x.dtype)])


@onnx_op("MatMulInteger")
def matmul_integer(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    operands = [
        ctx.value(node, 0),
        ctx.value(node, 1),
        ctx.optional(node, 2),
        ctx.optional(node, 3),
    ]
    return [ctx.g.add("matmul_integer", operands)]


@onnx_op("QLinearMatMul")
def qlinear_matmul(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """An exact integer GEMM, requantised with one multiplication."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (ctx.value(node, i) for i in range(8))
    if not a.dtype.is_int:
        raise ctx.unsupported(node, f"operands of type {a.dtype}", "dequantize them instead")
    total = ctx.g.add("matmul_integer", [a, b, a_zero, b_zero])
    per_row = a_scale.tensor.rank == 1 and a.tensor.rank > 1 and a_scale.shape[0] != 1
    a_scale = reshape(ctx, a_scale, (*a_scale.shape, 1)) if per_row else a_scale
    factor = scales(ctx, [a_scale, b_scale], y_scale)
    return [requantized(ctx, total, factor, y_zero)]


@onnx_op("Einsum")
def einsum_node(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    operands = [ctx.value(node, i) for i in range(len(node.inputs))]
    result = einsum.convert(ctx, node, node.attr("equation"), operands)
    return [cast(ctx, result, operands[0].dtype)]

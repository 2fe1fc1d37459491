"""ONNX converters of the quant family: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, and
helpers of the QLinear operators.

In: ONNX nodes. Out: nodes of ops/quant.py. Called by walker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot import dtypes
from ingot.dtypes import DType
from ingot.frontends.common.elements import cast, scalar
from ingot.frontends.onnx.common import axis_of
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.frontends.onnx.tensors import dtype_of
from ingot.graph.ir import Value


def granularity(node: OnnxNode, x: Value, scale: Value) -> dict[str, Any]:
    """Attributes of per-axis and blocked quantisation: axis and block; none if per tensor."""
    if scale.tensor.rank == 0 or (scale.tensor.rank == 1 and scale.shape[0] == 1):
        return {}
    attrs: dict[str, Any] = {"axis": axis_of(node, node.attr("axis", 1), x.tensor.rank)}
    if node.attr("block_size", 0):
        attrs["block"] = node.attr("block_size")
    return attrs


def target_type(node: OnnxNode, zero: Value | None, name: str, default: DType) -> DType:
    if zero is not None:
        return zero.dtype
    code = node.attr(name, 0)
    return dtype_of(code, node.where) if code else default


@onnx_op("QuantizeLinear")
def quantize(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x, scale, zero = ctx.value(node, 0), ctx.value(node, 1), ctx.optional(node, 2)
    to = target_type(node, zero, "output_dtype", dtypes.u8)
    if to.is_float and not node.attr("saturate", 1):
        raise ctx.unsupported(node, f"quantising to {to} without saturation")
    attrs = granularity(node, x, scale)
    if scale.dtype.is_int:
        raise ctx.unsupported(node, f"a scale of type {scale.dtype}")
    return [ctx.g.add("quantize_linear", [x, scale, zero], dtype=to, **attrs)]


@onnx_op("DequantizeLinear")
def dequantize(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x, scale, zero = ctx.value(node, 0), ctx.value(node, 1), ctx.optional(node, 2)
    attrs = granularity(node, x, scale)
    real = ctx.g.add("dequantize_linear", [x, scale, zero], **attrs)
    return [cast(ctx, real, target_type(node, None, "output_dtype", scale.dtype))]


@onnx_op("DynamicQuantizeLinear")
def dynamic_quantize(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return ctx.g.add_all("dynamic_quantize_linear", [ctx.value(node, 0)])


def scales(ctx: Importer, inputs: Sequence[Value], output: Value | None = None) -> Value:
    """The factor of requantisation: product of the input scales / output scale, if there is one."""
    first, *rest = (cast(ctx, v, dtypes.f32) for v in inputs)
    for other in rest:
        first = ctx.g.add("mul", [first, other])
    return first if output is None else ctx.g.add("div", [first, cast(ctx, output, dtypes.f32)])


def requantized(ctx: Importer, total: Value, factor: Value, zero: Value) -> Value:
    """round(total · factor) + zero, saturated to the zero point's type."""
    real = ctx.g.add("mul", [cast(ctx, total, dtypes.f32), factor])
    one = scalar(ctx, 1.0, dtypes.f32)
    zero = zero if zero.tensor.rank == 0 else ctx.g.add("reshape", [zero], shape=())
    return ctx.g.add("quantize_linear", [real, one, zero], dtype=zero.dtype)

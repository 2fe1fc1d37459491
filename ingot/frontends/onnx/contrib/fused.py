"""Converters of com.microsoft's fused operators: convolutions, matmuls and biases with activations.

In: ONNX nodes. Out: conv and matmul nodes, transposes, activations. Called by walker. What ONNX
Runtime fused becomes separate nodes again; Ingot's own fusion decides anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ingot.arith import expr as arith
from ingot.frontends.common.elements import reshape, scalar, tidy
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.contrib.checks import (
    MICROSOFT,
    float_attr,
    int_attr,
    text_attr,
)
from ingot.frontends.onnx.conv import conv_attrs, kernel_of
from ingot.frontends.onnx.matmul import gemm, scaled
from ingot.frontends.onnx.pool import pool_attrs
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value
from ingot.ops.activation import SELU_ALPHA, SELU_GAMMA

# --- activations --------------------------------------------------------------------------------

# name in the file → operator, {attribute: its default}
ACTIVATIONS: dict[str, tuple[str, dict[str, float]]] = {
    "Relu": ("relu", {}), "Tanh": ("tanh", {}), "Sigmoid": ("sigmoid", {}),
    "LeakyRelu": ("leaky_relu", {"alpha": 0.01}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
    "HardSwish": ("hard_swish", {}), "Elu": ("elu", {"alpha": 1.0}),
    "Celu": ("celu", {"alpha": 1.0}), "Gelu": ("gelu", {}), "Mish": ("mish", {}),
    "Selu": ("selu", {"alpha": SELU_ALPHA, "gamma": SELU_GAMMA}),
    "Softplus": ("softplus", {}), "Softsign": ("softsign", {}),
    "ThresholdedRelu": ("thresholded_relu", {"alpha": 1.0}),
}  # fmt: skip


def activated(
    ctx: Importer, node: OnnxNode, x: Value, name: str, given: Mapping[str, float]
) -> Value:
    """The activation `name` of x; "" is none."""
    if not name:
        return x
    if name == "Clip":
        low, high = (given.get(key) for key in ("alpha", "beta"))
        bounds = [None if v is None else scalar(ctx, v, x.dtype) for v in (low, high)]
        return ctx.g.add("clip", [x, *bounds])
    if name in ("Softmax", "LogSoftmax"):
        op = {"Softmax": "softmax", "LogSoftmax": "log_softmax"}[name]
        return ctx.g.add(op, [x], axis=int_attr(node, "activation_axis", -1))
    if name not in ACTIVATIONS:
        raise ctx.unsupported(node, f"the activation {name!r}")
    op, defaults = ACTIVATIONS[name]
    attrs: dict[str, Any] = {key: given.get(key, v) for key, v in defaults.items()}
    return ctx.g.add(op, [x], **attrs)


def listed_params(node: OnnxNode) -> dict[str, float]:
    """`activation_params` by their names, in order."""
    return dict(zip(("alpha", "beta", "gamma"), node.attr("activation_params") or ()))


def named_params(node: OnnxNode) -> dict[str, float]:
    names = [key for key in ("alpha", "beta", "gamma") if f"activation_{key}" in node.attrs]
    return {key: float_attr(node, f"activation_{key}", 0) for key in names}


# --- convolutions -------------------------------------------------------------------------------


def channels_first(ctx: Importer, x: Value) -> Value:
    rank = x.tensor.rank
    return ctx.g.add("transpose", [x], perm=(0, rank - 1, *range(1, rank - 1)))


def channels_last(ctx: Importer, x: Value) -> Value:
    return ctx.g.add("transpose", [x], perm=(0, *range(2, x.tensor.rank), 1))


def fused_conv(ctx: Importer, node: OnnxNode, is_last: bool) -> Value:
    """conv(x, w) + bias + z, then the activation."""
    x, w = ctx.value(node, 0), ctx.value(node, 1)
    bias, z = ctx.optional(node, 2), ctx.optional(node, 3)
    x = channels_first(ctx, x) if is_last else x
    operands = [x, w] if bias is None else [x, w, bias]
    y = ctx.g.add("conv", operands, **conv_attrs(ctx, node, x, w))
    if z is not None:
        y = ctx.g.add("add", [y, channels_first(ctx, z) if is_last else z])
    y = activated(ctx, node, y, text_attr(node, "activation"), listed_params(node))
    return channels_last(ctx, y) if is_last else y


@onnx_op("FusedConv", domain=MICROSOFT)
def fused_conv_node(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return [fused_conv(ctx, node, is_last=False)]


@onnx_op("NhwcConv", "NhwcFusedConv", domain=MICROSOFT)
def nhwc_conv(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return [fused_conv(ctx, node, is_last=True)]


@onnx_op("NhwcMaxPool", domain=MICROSOFT)
def nhwc_max_pool(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x = channels_first(ctx, ctx.value(node, 0))
    return [channels_last(ctx, ctx.g.add("max_pool", [x], **pool_attrs(ctx, node, x)))]


@onnx_op("ConvTransposeWithDynamicPads", domain=MICROSOFT)
def conv_transpose(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """The pads are an operand: sizes, which may be known only when running."""
    x, w, bias = ctx.value(node, 0), ctx.value(node, 1), ctx.optional(node, 3)
    rank = len(kernel_of(ctx, node, w))
    has_pads = ctx.optional(node, 2) is not None
    pads = ctx.dims(node, 2) if has_pads else (arith.Const(0),) * (2 * rank)
    if len(pads) != 2 * rank:
        raise bad_model(node, f"{len(pads)} pads for {rank} spatial axes")
    attrs: dict[str, Any] = {
        "strides": tuple(node.attr("strides") or (1,) * rank), "pads": pads,
        "dilations": tuple(node.attr("dilations") or (1,) * rank),
        "output_padding": tuple(node.attr("output_padding") or (0,) * rank),
        "group": int_attr(node, "group", 1),
    }  # fmt: skip
    return [ctx.g.add("conv_transpose", [x, w] if bias is None else [x, w, bias], **attrs)]


# --- matmuls ------------------------------------------------------------------------------------


@onnx_op("FusedGemm", domain=MICROSOFT)
def fused_gemm(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    (y,) = gemm(ctx, node)
    assert y is not None
    return [activated(ctx, node, y, text_attr(node, "activation"), named_params(node))]


def matrix_operand(ctx: Importer, node: OnnxNode, index: int) -> Value:
    """transBatch moves axis 0 behind the batch axes; trans swaps the last two axes."""
    x, which = ctx.value(node, index), "AB"[index]
    rank = x.tensor.rank
    perm = list(range(rank))
    if rank > 2 and int_attr(node, f"transBatch{which}", 0):
        perm = [*range(1, rank - 1), 0, rank - 1]
    if rank > 1 and int_attr(node, f"trans{which}", 0):
        perm[-2:] = perm[:-3:-1]
    return x if perm == sorted(perm) else ctx.g.add("transpose", [x], perm=tuple(perm))


@onnx_op("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    y = ctx.g.add("matmul", [matrix_operand(ctx, node, i) for i in (0, 1)])
    return [scaled(ctx, node, y, float_attr(node, "alpha", 1.0))]


@onnx_op("FusedMatMulActivation", domain=MICROSOFT)
def fused_matmul_activation(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    (y,) = fused_matmul(ctx, node)
    assert y is not None
    return [activated(ctx, node, y, text_attr(node, "activation"), named_params(node))]


# --- biases -------------------------------------------------------------------------------------


@onnx_op("BiasAdd", domain=MICROSOFT)
def bias_add(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x, bias, skip = (ctx.value(node, i) for i in range(3))
    return [ctx.g.add("add", [ctx.g.add("add", [x, bias]), skip])]


@onnx_op("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """The left half of x + bias times gelu of the right half."""
    biased = ctx.g.add("add", [ctx.value(node, 0), ctx.value(node, 1)])
    half = tidy(ctx, biased.shape[-1] // 2)
    halves = reshape(ctx, biased, (*biased.shape[:-1], 2, half))
    left, right = (part_of(ctx, halves, i) for i in (0, 1))
    return [ctx.g.add("mul", [left, ctx.g.add("gelu", [right])])]


def part_of(ctx: Importer, x: Value, index: int) -> Value:
    """x[…, index, :], of a tensor with `parts` on its last axis but one."""
    rank = x.tensor.rank
    starts = tuple(index if axis == rank - 2 else 0 for axis in range(rank))
    sizes = (*x.shape[:-2], arith.Const(1), x.shape[-1])
    one = ctx.g.add("slice", [x], starts=starts, sizes=sizes, steps=(1,) * rank)
    return reshape(ctx, one, (*x.shape[:-2], x.shape[-1]))

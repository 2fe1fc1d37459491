"""ONNX converters of the conv family: Conv, ConvTranspose, ConvInteger, QLinearConv.

In: ONNX nodes. Out: nodes of ops/conv.py. Called by walker. auto_pad becomes explicit pads,
expressions over symbols where the input's size is dynamic; pool.py uses the same helpers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import Dims, cast, reshape, tidy
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.quant import requantized, scales
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value


def window_attrs(
    ctx: Importer, node: OnnxNode, space: Dims, kernel: Sequence[int]
) -> dict[str, Any]:
    """The explicit strides, dilations and pads of a sliding window over `space`."""
    rank = len(space)
    strides = tuple(node.attr("strides") or (1,) * rank)
    dilations = tuple(node.attr("dilations") or (1,) * rank)
    if not len(kernel) == len(strides) == len(dilations) == rank:
        raise bad_model(node, f"kernel, strides or dilations do not fit {rank} spatial axes")
    pads: Sequence[arith.IntLike] = tuple(node.attr("pads") or (0,) * (2 * rank))
    mode = node.attr("auto_pad", "NOTSET")
    if mode == "VALID":
        pads = (0,) * (2 * rank)
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        rows = zip(space, kernel, strides, dilations)
        totals = [same_padding(ctx, n, k, s, d) for n, k, s, d in rows]
        pads = split_padding(ctx, totals, upper=mode == "SAME_UPPER")
    elif mode not in ("NOTSET", ""):
        raise bad_model(node, f"auto_pad {mode!r} is unknown")
    return {"strides": strides, "dilations": dilations, "pads": tuple(pads)}


def same_padding(ctx: Importer, size: arith.Expr, k: int, stride: int, dilation: int) -> arith.Expr:
    """The total padding for ceil(size / stride) outputs (SAME padding)."""
    outputs = arith.ceildiv(size, stride)
    missing = tidy(ctx, (outputs - 1) * stride + dilation * (k - 1) + 1 - size)
    return tidy(ctx, arith.maximum(missing, 0))


def split_padding(ctx: Importer, totals: Dims, upper: bool) -> tuple[arith.Expr, ...]:
    """All begins, then all ends; an odd element goes to the end if `upper`."""
    small = [tidy(ctx, total // 2) for total in totals]
    large = [tidy(ctx, total - half) for total, half in zip(totals, small)]
    return (*small, *large) if upper else (*large, *small)


def kernel_of(ctx: Importer, node: OnnxNode, w: Value) -> list[int]:
    sizes = [arith.as_int(d) for d in w.shape[2:]]
    if None in sizes:
        raise ctx.unsupported(node, f"weights with a dynamic kernel size, {w.type}")
    found = [int(size or 0) for size in sizes]
    if node.attr("kernel_shape") not in (None, found):
        raise bad_model(node, f"kernel_shape {node.attr('kernel_shape')} does not match {w.type}")
    return found


def conv_attrs(ctx: Importer, node: OnnxNode, x: Value, w: Value) -> dict[str, Any]:
    attrs = window_attrs(ctx, node, x.shape[2:], kernel_of(ctx, node, w))
    return {**attrs, "group": node.attr("group", 1)}


@onnx_op("Conv")
def conv(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x, w, bias = ctx.value(node, 0), ctx.value(node, 1), ctx.optional(node, 2)
    operands = [x, w] if bias is None else [x, w, bias]
    return [ctx.g.add("conv", operands, **conv_attrs(ctx, node, x, w))]


@onnx_op("ConvTranspose")
def conv_transpose(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x, w, bias = ctx.value(node, 0), ctx.value(node, 1), ctx.optional(node, 2)
    operands = [x, w] if bias is None else [x, w, bias]
    kernel, space = kernel_of(ctx, node, w), x.shape[2:]
    rank = len(space)
    strides = tuple(node.attr("strides") or (1,) * rank)
    dilations = tuple(node.attr("dilations") or (1,) * rank)
    extra: list[arith.IntLike] = list(node.attr("output_padding") or (0,) * rank)
    pads: Sequence[arith.IntLike] = tuple(node.attr("pads") or (0,) * (2 * rank))
    wanted, mode = node.attr("output_shape"), node.attr("auto_pad", "NOTSET")
    if mode == "VALID":
        pads = (0,) * (2 * rank)
    elif wanted or mode in ("SAME_UPPER", "SAME_LOWER"):
        sizes = wanted[-rank:] if wanted else [n * s for n, s in zip(space, strides)]
        rows = zip(space, kernel, strides, dilations, extra, sizes)
        totals = [
            tidy(ctx, (n - 1) * s + more + d * (k - 1) + 1 - size)
            for n, k, s, d, more, size in rows
        ]
        # output_shape larger than the unpadded output: pad at the end
        extra = [more + tidy(ctx, arith.maximum(-total, 0)) for more, total in zip(extra, totals)]
        totals = [tidy(ctx, arith.maximum(total, 0)) for total in totals]
        pads = split_padding(ctx, totals, upper=mode == "SAME_UPPER")
    attrs = {
        "strides": strides, "dilations": dilations, "pads": tuple(pads),
        "output_padding": tuple(extra), "group": node.attr("group", 1),
    }  # fmt: skip
    return [ctx.g.add("conv_transpose", operands, **attrs)]


def centred(ctx: Importer, x: Value, zero: Value | None, per_output: bool) -> Value:
    """x - zero in i32; weights may have a zero point for each output channel."""
    wide = cast(ctx, x, dtypes.i32)
    if zero is None:
        return wide
    if per_output and zero.tensor.rank == 1 and zero.shape[0] != 1:
        zero = reshape(ctx, zero, (zero.shape[0], *(1,) * (x.tensor.rank - 1)))
    return ctx.g.add("sub", [wide, cast(ctx, zero, dtypes.i32)])


@onnx_op("ConvInteger")
def conv_integer(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x, w = ctx.value(node, 0), ctx.value(node, 1)
    operands = [
        centred(ctx, x, ctx.optional(node, 2), per_output=False),
        centred(ctx, w, ctx.optional(node, 3), per_output=True),
    ]
    return [ctx.g.add("conv", operands, **conv_attrs(ctx, node, x, w))]


@onnx_op("QLinearConv")
def qlinear_conv(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """An exact integer convolution, requantised with one multiplication."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (ctx.value(node, i) for i in range(8))
    bias = ctx.optional(node, 8)
    operands = [centred(ctx, x, x_zero, per_output=False), centred(ctx, w, w_zero, per_output=True)]
    operands += [] if bias is None else [bias]
    total = ctx.g.add("conv", operands, **conv_attrs(ctx, node, x, w))
    if w_scale.tensor.rank == 1 and w_scale.shape[0] != 1:
        w_scale = reshape(ctx, w_scale, (w_scale.shape[0], *(1,) * (x.tensor.rank - 2)))
    return [requantized(ctx, total, scales(ctx, [x_scale, w_scale], y_scale), y_zero)]

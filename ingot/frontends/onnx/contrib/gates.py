"""Converters of com.microsoft's gated and branched element-wise operators: GatedAdd, ScaledSiLU,
GatedRMSNorm, BranchwiseRMSNorm, UnfoldTensor.

In: ONNX nodes. Out: products, norms, slices. Called by walker. Norms and gates are computed in f32
and rounded to the operands' type once.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import as_scalar, cast, reshape, scalar, tidy
from ingot.frontends.onnx.common import axis_of, bad_model
from ingot.frontends.onnx.contrib.checks import (
    MICROSOFT,
    count_attr,
    float_attr,
    int_attr,
    text_attr,
)
from ingot.frontends.onnx.contrib.masks import counting
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value


@onnx_op("GatedAdd", domain=MICROSOFT)
def gated_add(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """x + y · gate, where the gate has one number for each row."""
    x, y, gate = (ctx.value(node, i) for i in range(3))
    column = reshape(ctx, gate, (*gate.shape[:-1], 1))
    return [ctx.g.add("add", [x, ctx.g.add("mul", [y, column])])]


@onnx_op("ScaledSiLU", domain=MICROSOFT)
def scaled_silu(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """silu(scale · x), where the scale is an operand or the attribute alpha."""
    x, given = ctx.value(node, 0), ctx.optional(node, 1)
    if given is None:
        scale = scalar(ctx, float_attr(node, "alpha", 1.0), dtypes.f32)
    else:
        scale = cast(ctx, as_scalar(ctx, given), dtypes.f32)
    wide = ctx.g.add("mul", [cast(ctx, x, dtypes.f32), scale])
    return [ctx.g.add("silu", [cast(ctx, wide, x.dtype)])]


@onnx_op("GatedRMSNorm", domain=MICROSOFT)
def gated_rms_norm(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """rms_norm of each group of as many numbers as the scale has, times the activated gate."""
    x, scale, gate = (ctx.value(node, i) for i in range(3))
    name = text_attr(node, "activation", "silu")
    if name not in ("silu", "swish", "sigmoid"):
        raise bad_model(node, f"the activation {name!r} is unknown")
    (size,) = scale.shape
    groups = (*x.shape[:-1], tidy(ctx, x.shape[-1] // size), size)
    wide, weights, open_ = (cast(ctx, v, dtypes.f32) for v in (x, scale, gate))
    split = reshape(ctx, wide, groups)
    epsilon = float_attr(node, "epsilon", 1e-5)
    y = ctx.g.add("rms_norm", [split, weights], axis=len(groups) - 1, epsilon=epsilon)
    active = ctx.g.add("sigmoid" if name == "sigmoid" else "silu", [open_])
    y = ctx.g.add("mul", [reshape(ctx, y, x.shape), active])
    return [cast(ctx, y, x.dtype)]


@onnx_op("BranchwiseRMSNorm", domain=MICROSOFT)
def branchwise_rms_norm(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """rms_norm of each branch, (…, C, H) or, with num_branches, (…, C · H). The scale is of one
    branch, (H), or of all."""
    x, scale, count = ctx.value(node, 0), ctx.optional(node, 1), int_attr(node, "num_branches", 0)
    wide = cast(ctx, x, dtypes.f32)
    if count:
        wide = reshape(ctx, wide, (*x.shape[:-1], count, x.shape[-1] // count))
    branches, size = wide.shape[-2:]
    y = ctx.g.add("rms_norm", [wide], axis=-1, epsilon=float_attr(node, "epsilon", 1e-5))
    if scale is not None:
        weights = cast(ctx, scale, dtypes.f32)
        is_whole = scale.tensor.rank == 1 and tidy(ctx, scale.shape[0]) != tidy(ctx, size)
        weights = reshape(ctx, weights, (branches, size)) if is_whole else weights
        y = ctx.g.add("mul", [y, weights])
    return [cast(ctx, reshape(ctx, y, x.shape), x.dtype)]


@onnx_op("UnfoldTensor", domain=MICROSOFT)
def unfold(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """All windows of `size` elements along an axis, `step` apart; a window is the last axis."""
    x, size, step = ctx.value(node, 0), count_attr(node, "size"), int_attr(node, "step", 1)
    axis = axis_of(node, int_attr(node, "dim", -1), x.tensor.rank)
    if step < 1:
        raise bad_model(node, f"attribute 'step' is {step}, not at least 1")
    count = tidy(ctx, (x.shape[axis] - size) // step + 1)
    starts = ctx.g.add("mul", [counting(ctx, count), scalar(ctx, step, dtypes.i32)])
    places = ctx.g.add("add", [reshape(ctx, starts, (count, 1)), counting(ctx, arith.Const(size))])
    windows = ctx.g.add("gather", [x, places], axis=axis)
    rank = x.tensor.rank + 1
    perm = (*range(axis + 1), *range(axis + 2, rank), axis + 1)
    return [ctx.g.add("transpose", [windows], perm=perm)]

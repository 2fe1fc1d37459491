"""ONNX converters of the gather family: Gather, Scatter, OneHot, Compress, ReverseSequence,
TensorScatter.

In: ONNX nodes. Out: nodes of ops/gather.py, ops/scatter.py and ops/tensor_scatter.py.
Called by walker.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import cast, indices, reshape
from ingot.frontends.onnx.common import axis_of, bad_model
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.frontends.onnx.runtime_axes import bound_sizes
from ingot.graph.ir import Value


@onnx_op("Gather")
def gather(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x = ctx.value(node, 0)
    axis = axis_of(node, node.attr("axis", 0), x.tensor.rank)
    return [ctx.g.add("gather", [x, indices(ctx, ctx.value(node, 1))], axis=axis)]


@onnx_op("GatherElements")
def gather_elements(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x = ctx.value(node, 0)
    axis = axis_of(node, node.attr("axis", 0), x.tensor.rank)
    return [ctx.g.add("gather_elements", [x, indices(ctx, ctx.value(node, 1))], axis=axis)]


@onnx_op("GatherND")
def gather_nd(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    operands = [ctx.value(node, 0), indices(ctx, ctx.value(node, 1))]
    return [ctx.g.add("gather_nd", operands, batch_dims=node.attr("batch_dims", 0))]


@onnx_op("ScatterND")
def scatter_nd(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    operands = [ctx.value(node, 0), indices(ctx, ctx.value(node, 1)), ctx.value(node, 2)]
    return [ctx.g.add("scatter_nd", operands, reduction=node.attr("reduction", "none"))]


@onnx_op("ScatterElements", "Scatter")
def scatter_elements(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x = ctx.value(node, 0)
    operands = [x, indices(ctx, ctx.value(node, 1)), ctx.value(node, 2)]
    axis = axis_of(node, node.attr("axis", 0), x.tensor.rank)
    reduction = node.attr("reduction", "none")
    return [ctx.g.add("scatter_elements", operands, axis=axis, reduction=reduction)]


@onnx_op("OneHot")
def one_hot(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """The depth may be a float; indices that are not i32 or i64 are cast."""
    number, given = ctx.known(node, 1), ctx.value(node, 1)
    if number is not None:
        depth: arith.Expr = arith.Const(int(number.reshape(-1)[0]))
    elif given.dtype.is_float:
        (depth,) = bound_sizes(ctx, reshape(ctx, cast(ctx, given, dtypes.i64), (1,)))
    else:
        (depth,) = ctx.dims(node, 1)
    at = indices(ctx, ctx.value(node, 0))
    axis = axis_of(node, node.attr("axis", -1), at.tensor.rank + 1)
    return [ctx.g.add("one_hot", [at, ctx.value(node, 2)], depth=depth, axis=axis)]


@onnx_op("ReverseSequence")
def reverse_sequence(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    operands = [ctx.value(node, 0), indices(ctx, ctx.value(node, 1))]
    axes = {"batch_axis": node.attr("batch_axis", 1), "time_axis": node.attr("time_axis", 0)}
    return [ctx.g.add("reverse_sequence", operands, **axes)]


@onnx_op("Compress")
def compress(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """gather(x, nonzero(condition))"""
    x, condition = ctx.value(node, 0), cast(ctx, ctx.value(node, 1), dtypes.bool_)
    if condition.tensor.rank != 1:
        raise bad_model(node, f"its condition is {condition.type}, not a 1-D bool tensor")
    if "axis" not in node.attrs:
        x, axis = reshape(ctx, x, [x.tensor.numel]), 0
    else:
        axis = axis_of(node, node.attr("axis"), x.tensor.rank)
    symbol = ctx.g.symbol("kept", high=arith.as_int(condition.tensor.numel))
    points = ctx.g.add("nonzero", [condition], symbols=(symbol,))
    return [ctx.g.add("gather", [x, reshape(ctx, points, [arith.Var(symbol)])], axis=axis)]


@onnx_op("TensorScatter")
def tensor_scatter(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """Rows are written from 0 on where there is no operand of indices."""
    x, mode = ctx.value(node, 0), node.attr("mode", "linear")
    axis = axis_of(node, node.attr("axis", -2), x.tensor.rank)
    if mode not in ("linear", "circular") or axis == 0:
        raise bad_model(node, f"mode {mode!r} along axis {axis} is not defined")
    at = ctx.optional(node, 2)
    if at is None:
        at = ctx.g.add("fill", [], value=0, to=dtypes.i64, shape=(x.shape[0],))
    operands = [x, ctx.value(node, 1), at]
    return [ctx.g.add("tensor_scatter", operands, axis=axis, circular=mode == "circular")]

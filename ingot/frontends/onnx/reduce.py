"""ONNX converters of the reduce family: Reduce*, ArgMax, ArgMin, CumSum, CumProd, TopK.

In: ONNX nodes. Out: nodes of ops/reduce.py and ops/ordered.py. Called by walker. Axes are an
attribute in old opsets, an operand in new ones; mostly it is constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import cast
from ingot.frontends.onnx.common import (
    axes_of,
    known_int,
    known_ints,
    number_of_axes,
    runtime_operand,
)
from ingot.frontends.onnx.registry import Converter, Importer, OnnxNode, onnx_op
from ingot.frontends.onnx.runtime_axes import RuntimeAxes, around_axis, split_pairs, without_named
from ingot.graph.ir import Value

# ONNX name → (operator, the opset from which axes are an operand)
REDUCTIONS = {
    "ReduceSum": ("reduce_sum", 13), "ReduceMean": ("reduce_mean", 18),
    "ReduceMax": ("reduce_max", 18), "ReduceMin": ("reduce_min", 18),
    "ReduceProd": ("reduce_prod", 18), "ReduceL1": ("reduce_l1", 18),
    "ReduceL2": ("reduce_l2", 18), "ReduceSumSquare": ("reduce_sum_square", 18),
    "ReduceLogSum": ("reduce_log_sum", 18), "ReduceLogSumExp": ("reduce_log_sum_exp", 18),
}  # fmt: skip
FLOAT_ONLY = {
    "reduce_l2": dtypes.f64,
    "reduce_log_sum": dtypes.f32,
    "reduce_log_sum_exp": dtypes.f32,
}


def by_attribute(op: str) -> Converter:
    def convert(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
        return [reduced(ctx, node, op, node.attr("axes"))]

    return convert


def by_operand(op: str) -> Converter:
    def convert(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
        axes = runtime_operand(ctx, node, 1)
        if axes is not None:
            return [reduced_at_run_time(ctx, node, op, axes)]
        return [reduced(ctx, node, op, known_ints(ctx, node, 1, "the axes"))]

    return convert


def reduced(ctx: Importer, node: OnnxNode, op: str, given: Sequence[int] | None) -> Value:
    """No axes means all of them, or none if noop_with_empty_axes."""
    x = ctx.value(node, 0)
    rank = x.tensor.rank
    axes = sorted(axes_of(node, given or (), rank))
    if not axes and not node.attr("noop_with_empty_axes", 0):
        axes = list(range(rank))
    return reduction(ctx, op, x, axes, bool(node.attr("keepdims", 1)))


def reduction(ctx: Importer, op: str, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    """Where the operator needs floats, integers are cast to float and back."""
    if op in FLOAT_ONLY and not x.dtype.is_float:
        wide = ctx.g.add(op, [cast(ctx, x, FLOAT_ONLY[op])], axes=axes, keepdims=keepdims)
        return cast(ctx, wide, x.dtype)
    return ctx.g.add(op, [x], axes=axes, keepdims=keepdims)


def reduced_at_run_time(ctx: Importer, node: OnnxNode, op: str, axes: Value) -> Value:
    """The axes are a value: how many there are is known, and so is the rank of the result."""
    x, count = ctx.value(node, 0), number_of_axes(ctx, node, axes)
    if not count:
        return reduced(ctx, node, op, ())
    rank = x.tensor.rank
    chosen = RuntimeAxes(ctx, axes, rank)
    pairs = split_pairs(ctx, x, chosen)
    made = reduction(ctx, op, pairs, tuple(range(1, 2 * rank, 2)), keepdims=False)
    if node.attr("keepdims", 1):
        return made
    return without_named(ctx, made, chosen, rank - count)


for name, (operator, since_operand) in REDUCTIONS.items():
    onnx_op(name)(by_attribute(operator))
    onnx_op(name, since=since_operand)(by_operand(operator))


def arg_reduction(op: str) -> Converter:
    def convert(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
        attrs = {
            "axis": node.attr("axis", 0),
            "keepdims": bool(node.attr("keepdims", 1)),
            "select_last": bool(node.attr("select_last_index", 0)),
        }
        return [ctx.g.add(op, [ctx.value(node, 0)], **attrs)]

    return convert


onnx_op("ArgMax")(arg_reduction("argmax"))
onnx_op("ArgMin")(arg_reduction("argmin"))


def prefix(op: str) -> Converter:
    def convert(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
        attrs: Any = {name: bool(node.attr(name, 0)) for name in ("exclusive", "reverse")}
        x, axis = ctx.value(node, 0), runtime_operand(ctx, node, 1)
        if axis is None:
            axis_number = known_int(ctx, node, 1, "the axis", 0)
            return [ctx.g.add(op, [x], axis=axis_number, **attrs)]
        made = ctx.g.add(op, [around_axis(ctx, x, axis)], axis=1, **attrs)
        return [ctx.g.add("reshape", [made], shape=x.shape)]

    return convert


onnx_op("CumSum")(prefix("cumsum"))
onnx_op("CumProd")(prefix("cumprod"))


@onnx_op("TopK")
def topk_attr(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return top_k(ctx, node, arith.wrap(node.attr("k")))


@onnx_op("TopK", since=10)
def topk_operand(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return top_k(ctx, node, ctx.dims(node, 1)[0])


def top_k(ctx: Importer, node: OnnxNode, k: arith.Expr) -> Sequence[Value]:
    """The result is always sorted: ONNX allows any order if `sorted` is 0."""
    axis, largest = node.attr("axis", -1), bool(node.attr("largest", 1))
    return ctx.g.add_all("topk", [ctx.value(node, 0)], axis=axis, k=k, largest=largest)

"""ONNX converters of the softmax family: Softmax, LogSoftmax, Hardmax.

In: ONNX nodes. Out: nodes of ops/softmax.py. Called by walker. Before opset 13 they flatten
the input to two dimensions at `axis`; since then they act along that axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ingot.arith import expr as arith
from ingot.frontends.common.elements import reshape
from ingot.frontends.onnx.common import axis_of
from ingot.frontends.onnx.registry import Converter, Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value

AxisFunction = Callable[[Importer, Value, int], Value]


def softmax(ctx: Importer, x: Value, axis: int) -> Value:
    return ctx.g.add("softmax", [x], axis=axis)


def log_softmax(ctx: Importer, x: Value, axis: int) -> Value:
    return ctx.g.add("log_softmax", [x], axis=axis)


def hardmax(ctx: Importer, x: Value, axis: int) -> Value:
    """1 at the first maximum, 0 elsewhere."""
    index = ctx.g.add("argmax", [x], axis=axis, keepdims=False, select_last=False)
    values = ctx.g.constant(np.array([0, 1]).astype(x.dtype.numpy))
    return ctx.g.add("one_hot", [index, values], axis=axis, depth=x.shape[axis])


def along_axis(function: AxisFunction) -> Converter:
    def convert(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
        x = ctx.value(node, 0)
        return [function(ctx, x, axis_of(node, node.attr("axis", -1), x.tensor.rank))]

    return convert


def flattened(function: AxisFunction) -> Converter:
    def convert(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
        x = ctx.value(node, 0)
        axis = axis_of(node, node.attr("axis", 1), x.tensor.rank)
        return [over_rest(ctx, function, x, axis)]

    return convert


def over_rest(ctx: Importer, function: AxisFunction, x: Value, axis: int) -> Value:
    """The function over the axes from `axis` on, as if they were one."""
    if axis == x.tensor.rank - 1:
        return function(ctx, x, axis)
    rows, row = (arith.product(list(dims)) for dims in (x.shape[:axis], x.shape[axis:]))
    flat = reshape(ctx, x, (rows, row))
    return reshape(ctx, function(ctx, flat, 1), x.shape)


for name, function in (("Softmax", softmax), ("LogSoftmax", log_softmax), ("Hardmax", hardmax)):
    onnx_op(name)(flattened(function))
    onnx_op(name, since=13)(along_axis(function))

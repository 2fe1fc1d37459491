"""ONNX converters of the sources: Constant, Shape, Range, NonZero and the like.

In: ONNX nodes. Out: nodes of ops/sources.py. Called by walker.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot.arith import expr as arith
from ingot.frontends.common.elements import as_scalar, tidy
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.frontends.onnx.tensors import dtype_of
from ingot.graph.ir import Value

# attribute → its element type
CONSTANT_FORMS = {
    "value": None, "sparse_value": None, "value_float": np.float32, "value_floats": np.float32,
    "value_int": np.int64, "value_ints": np.int64, "value_string": object, "value_strings": object,
}  # fmt: skip


@onnx_op("Constant")
def constant(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    given = [name for name in CONSTANT_FORMS if name in node.attrs]
    if not given:
        why = f"its value is {', '.join(sorted(node.attrs)) or 'missing'}"
        raise ctx.unsupported(node, why, "only numbers and strings are supported")
    return [ctx.g.constant(np.asarray(node.attr(given[0]), CONSTANT_FORMS[given[0]]))]


@onnx_op("ConstantOfShape")
def constant_of_shape(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    value = np.asarray(node.attr("value", np.zeros(1, np.float32)))
    if value.size != 1:
        raise bad_model(node, f"the value has {value.size} elements, not 1")
    fill = ctx.g.constant(value.reshape(()))
    return [ctx.g.add("fill", [fill], shape=ctx.dims(node, 0))]


@onnx_op("Shape")
def shape(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    sizes = ctx.value(node, 0).shape[node.attr("start", 0) : node.attr("end")]
    return [ctx.g.add("index_tensor", [], values=tuple(sizes), shape=(len(sizes),))]


@onnx_op("Size")
def size(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    count = tidy(ctx, ctx.value(node, 0).tensor.numel)
    return [ctx.g.add("index_tensor", [], values=(count,), shape=())]


@onnx_op("Range")
def range_(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    operands = [as_scalar(ctx, ctx.value(node, i)) for i in range(3)]
    return [ctx.g.add("range", operands, symbols=(ctx.g.symbol("count"),))]


@onnx_op("NonZero")
def nonzero(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x = ctx.value(node, 0)
    symbol = ctx.g.symbol("nonzero", high=arith.as_int(x.tensor.numel))
    return [ctx.g.add("nonzero", [x], symbols=(symbol,))]


@onnx_op("EyeLike")
def eye_like(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """A tensor of ones, of which trilu keeps diagonal k only."""
    x, k = ctx.value(node, 0), node.attr("k", 0)
    code = node.attr("dtype")
    dtype = x.dtype if code is None else dtype_of(code, node.where)
    ones = ctx.g.add("fill", [ctx.g.constant(np.ones((), dtype.numpy))], shape=x.shape)
    upper = ctx.g.add("trilu", [ones], upper=True, k=k)
    return [ctx.g.add("trilu", [upper], upper=False, k=k)]

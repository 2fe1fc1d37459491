"""ONNX converters of the random operators: uniform, normal, Bernoulli, Multinomial, Dropout.

In: ONNX nodes. Out: `random_bits` (ops/random.py) and arithmetic. Called by walker.

With the attribute `seed` a node gives the same numbers in every call. Without it numbers differ
from node to node and from call to call, and repeat after `exe.seed(0)`. Numbers are drawn in f32,
or in f64 for an output of that type, and rounded to the output's type.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot import dtypes
from ingot.dtypes import DType
from ingot.frontends.common.draws import Draws, Shape
from ingot.frontends.common.elements import as_scalar, cast, reshape, scalar
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.frontends.onnx.tensors import dtype_of
from ingot.graph.ir import Value


def draws_of(ctx: Importer, node: OnnxNode, dtype: DType) -> Draws:
    """A seed alone decides the numbers, whatever else is in the model."""
    seed = node.attr("seed")
    stream = 0 if seed is not None else ctx.random_stream()
    return Draws(ctx, ctx.random_key(seed), stream, dtype)


def scaled(ctx: Importer, x: Value, factor: float, offset: float) -> Value:
    """x · factor + offset"""
    g = ctx.g
    product = x if factor == 1 else g.add("mul", [x, scalar(ctx, factor, x.dtype)])
    return product if offset == 0 else g.add("add", [product, scalar(ctx, offset, x.dtype)])


def output_type(node: OnnxNode, default: DType) -> DType:
    code = node.attr("dtype")
    found = default if code is None else dtype_of(code, node.where)
    if not found.is_float:
        raise bad_model(node, f"random numbers of element type {found} are not floats")
    return found


def drawn(ctx: Importer, node: OnnxNode, dtype: DType, shape: Shape) -> list[Value]:
    """The output of RandomUniform, RandomNormal and their Like forms."""
    draws = draws_of(ctx, node, dtype)
    if node.op.startswith("RandomUniform"):
        low, high = node.attr("low", 0.0), node.attr("high", 1.0)
        made = scaled(ctx, draws.uniform(shape), high - low, low)
    else:
        made = scaled(ctx, draws.normal(shape), node.attr("scale", 1.0), node.attr("mean", 0.0))
    return [cast(ctx, made, dtype)]


@onnx_op("RandomUniform", "RandomNormal")
def random_of_shape(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    shape = node.attr("shape")
    if shape is None or any(size < 0 for size in shape):
        raise bad_model(node, f"attribute 'shape' is {shape}, not a list of sizes")
    return drawn(ctx, node, output_type(node, dtypes.f32), [int(size) for size in shape])


@onnx_op("RandomUniformLike", "RandomNormalLike")
def random_like(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x = ctx.value(node, 0)
    return drawn(ctx, node, output_type(node, x.dtype), x.shape)


@onnx_op("Bernoulli")
def bernoulli(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """1 with the probability that x gives, else 0."""
    x = ctx.value(node, 0)
    code = node.attr("dtype")
    draws = draws_of(ctx, node, x.dtype)
    hit = ctx.g.add("lt", [draws.uniform(x.shape), cast(ctx, x, draws.wide)])
    return [cast(ctx, hit, x.dtype if code is None else dtype_of(code, node.where))]


@onnx_op("Multinomial")
def multinomial(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """The number of classes whose cumulative probability is at most u, for each draw u."""
    x, g, count = ctx.value(node, 0), ctx.g, node.attr("sample_size", 1)
    to = dtype_of(node.attr("dtype", 6), node.where)
    if x.tensor.rank != 2 or count < 0 or to not in (dtypes.i32, dtypes.i64):
        what = f"x is {x.type}, sample_size {count}, the output {to}"
        raise bad_model(node, f"{what}: expected two axes, a count, and i32 or i64")
    rows, classes = x.shape
    weights = g.add("softmax", [cast(ctx, x, dtypes.f64)], axis=1)
    cumulative = reshape(ctx, g.add("cumsum", [weights], axis=1), (rows, 1, classes))
    draws = draws_of(ctx, node, dtypes.f64)
    u = reshape(ctx, draws.uniform((rows, count)), (rows, count, 1))
    passed = cast(ctx, g.add("le", [cumulative, u]), to)
    number = g.add("reduce_sum", [passed], axes=(2,), keepdims=False)
    # the last sum may be rounded to less than 1, and u be above it
    last = g.add("index_tensor", [], values=(classes - 1,), shape=())
    return [g.add("min", [number, cast(ctx, last, to)])]


@onnx_op("Dropout")
def dropout_attrs(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """Before opset 7 an attribute says whether the model is trained."""
    return dropped(ctx, node, np.asarray(not node.attr("is_test", 0)))


@onnx_op("Dropout", since=7)
def dropout_inference(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return dropped(ctx, node, np.asarray(False))


@onnx_op("Dropout", since=12)
def dropout(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    flag = ctx.optional(node, 2)
    known = np.asarray(False) if flag is None else ctx.known(node, 2)
    return dropped(ctx, node, flag if known is None else known.reshape(()))  # type: ignore[arg-type]


def dropped(ctx: Importer, node: OnnxNode, training: Value | np.ndarray) -> list[Value]:
    """x, with each element zero with probability `ratio` and the others scaled by 1 / (1 - ratio)
    while training; and the mask of those that are left."""
    x, g = ctx.value(node, 0), ctx.g
    mask_type = dtypes.bool_ if node.opset >= 10 else x.dtype
    if isinstance(training, np.ndarray) and not training:
        mask = g.add("fill", [scalar(ctx, 1, mask_type)], shape=x.shape)
        return [g.add("identity", [x]), mask][: len(node.outputs)]
    draws = draws_of(ctx, node, x.dtype)
    ratio = ctx.optional(node, 1)
    rate = scalar(ctx, node.attr("ratio", 0.5), draws.wide) if ratio is None else ratio
    rate = cast(ctx, as_scalar(ctx, rate), draws.wide)
    kept = g.add("ge", [draws.uniform(x.shape), rate])
    one = scalar(ctx, 1, draws.wide)
    wide = cast(ctx, x, draws.wide)
    scaled_x = g.add("div", [wide, g.add("sub", [one, rate])])
    y = cast(ctx, g.add("where", [kept, scaled_x, scalar(ctx, 0, draws.wide)]), x.dtype)
    if isinstance(training, Value):
        flag = as_scalar(ctx, training)
        y = g.add("where", [flag, y, x])
        kept = g.add("or", [kept, g.add("not", [flag])])
    return [y, cast(ctx, kept, mask_type)][: len(node.outputs)]

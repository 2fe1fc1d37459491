"""ONNX converters that prepare features: Scaler, Normalizer, Imputer, Binarizer,
ArrayFeatureExtractor, FeatureVectorizer.

In: nodes of `ai.onnx.ml`. Out: element-wise operators, reductions, gathers and concats. Called by
walker.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import cast, reshape, scalar
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.ml_scores import ML, constant, floats_of
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value


@onnx_op("Scaler", domain=ML)
def scaler(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """(x - offset) · scale, for each feature or for all."""
    x = ctx.value(node, 0)
    x = x if x.dtype is dtypes.f64 else cast(ctx, x, dtypes.f32)
    offset, scale = floats_of(node, "offset"), floats_of(node, "scale")
    for op, values in (("sub", offset), ("mul", scale)):
        if len(values):
            x = ctx.g.add(op, [x, by_feature(ctx, node, x, values)])
    return [cast(ctx, x, dtypes.f32)]


def by_feature(ctx: Importer, node: OnnxNode, x: Value, values: np.ndarray) -> Value:
    """One value for all features, or one for each (the last axis)."""
    if len(values) == 1:
        return ctx.g.constant(values.astype(x.dtype.numpy).reshape(()))
    features = arith.as_int(x.shape[-1]) if x.tensor.rank else None
    if features is not None and features != len(values):
        raise bad_model(node, f"it has {len(values)} values for {features} features")
    return constant(ctx, values, x.dtype)


@onnx_op("Normalizer", domain=ML)
def normalizer(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """Each row divided by its norm; a row of norm 0 stays as it is."""
    norms = {"MAX": "reduce_max", "L1": "reduce_l1", "L2": "reduce_l2"}
    kind = node.attr("norm", "MAX")
    if kind not in norms:
        raise bad_model(node, f"norm {kind!r} is not one of {', '.join(norms)}")
    x = cast(ctx, ctx.value(node, 0), dtypes.f32)
    axis = min(1, x.tensor.rank - 1)
    norm = ctx.g.add(norms[kind], [x], axes=(axis,), keepdims=True)
    is_zero = ctx.g.add("eq", [norm, scalar(ctx, 0.0, dtypes.f32)])
    safe = ctx.g.add("where", [is_zero, scalar(ctx, 1.0, dtypes.f32), norm])
    return [ctx.g.add("div", [x, safe])]


@onnx_op("Imputer", domain=ML)
def imputer(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """Values equal to the replaced one (which may be NaN) become the imputed ones."""
    x = ctx.value(node, 0)
    suffix = ("float", "floats") if x.dtype.is_float else ("int64", "int64s")
    values = np.asarray(node.attr(f"imputed_value_{suffix[1]}") or [])
    if not len(values):
        raise bad_model(node, f"it has no imputed_value_{suffix[1]}")
    old = node.attr(f"replaced_value_{suffix[0]}", 0)
    if x.dtype.is_float and np.isnan(old):
        is_missing = ctx.g.add("isnan", [x])
    else:
        is_missing = ctx.g.add("eq", [x, scalar(ctx, old, x.dtype)])
    return [ctx.g.add("where", [is_missing, by_feature(ctx, node, x, values), x])]


@onnx_op("Binarizer", domain=ML)
def binarizer(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x = ctx.value(node, 0)
    limit = node.attr("threshold", 0.0)
    wide = x if x.dtype.is_float else cast(ctx, x, dtypes.f32)  # the threshold is no integer
    is_above = ctx.g.add("gt", [wide, scalar(ctx, limit, wide.dtype)])
    return [cast(ctx, is_above, x.dtype)]


@onnx_op("ArrayFeatureExtractor", domain=ML)
def feature_extractor(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """Some columns: a gather along the last axis; a row becomes a matrix of one row."""
    x, index = ctx.value(node, 0), ctx.value(node, 1)
    if x.tensor.rank < 1:
        raise bad_model(node, "the first operand is a scalar")
    x = reshape(ctx, x, (1, x.shape[0])) if x.tensor.rank == 1 else x
    flat = reshape(ctx, index, (index.tensor.numel,))
    return [ctx.g.add("gather", [x, flat], axis=x.tensor.rank - 1)]


@onnx_op("FeatureVectorizer", domain=ML)
def feature_vectorizer(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """The operands side by side, each cut or padded with zeros to its number of columns."""
    columns = node.attr("inputdimensions") or []
    if columns and len(columns) != len(node.inputs):
        raise bad_model(
            node, f"it has {len(columns)} inputdimensions for {len(node.inputs)} inputs"
        )
    parts = []
    for k in range(len(node.inputs)):
        x = cast(ctx, ctx.value(node, k), dtypes.f32)
        rows = x.shape[0] if x.tensor.rank > 1 else arith.Const(1)
        rest = x.tensor.shape[1:] if x.tensor.rank > 1 else x.tensor.shape
        x = reshape(ctx, x, (rows, arith.product(list(rest))))
        parts.append(x if not columns else resized(ctx, node, x, columns[k]))
    return [parts[0] if len(parts) == 1 else ctx.g.add("concat", parts, axis=1)]


def resized(ctx: Importer, node: OnnxNode, x: Value, columns: int) -> Value:
    have = arith.as_int(x.shape[1])
    if columns < 0 or have is None:
        raise ctx.unsupported(node, f"an input of {x.shape[1]} columns where {columns} are wanted")
    if have > columns:
        sizes = (x.shape[0], arith.Const(columns))
        return ctx.g.add("slice", [x], starts=(0, 0), sizes=sizes, steps=(1, 1))
    if have == columns:
        return x
    zeros = ctx.g.add(
        "expand", [ctx.g.constant(np.zeros((1, 1), np.float32))], shape=(x.shape[0], columns - have)
    )
    return ctx.g.add("concat", [x, zeros], axis=1)

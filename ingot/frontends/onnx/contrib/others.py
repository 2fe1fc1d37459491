"""Converters of com.microsoft's operators that have a standard counterpart, and of the few that are
alone: CDist, Unique, NGramRepeatBlock, Rfft and Irfft.

In: ONNX nodes. Out: nodes of several families. Called by walker.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.frontends.common.elements import as_scalar, cast, reshape, scalar, tidy
from ingot.frontends.onnx.common import axis_of, bad_model, known_int
from ingot.frontends.onnx.contrib.checks import (
    MICROSOFT,
    as_standard,
    count_attr,
    int_attr,
    rank_of,
    text_attr,
)
from ingot.frontends.onnx.contrib.masks import counting, size_value
from ingot.frontends.onnx.contrib.rotary import last
from ingot.frontends.onnx.operands import Operand
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value
from ingot.ops.common import wide_dtype

onnx_op("GatherND", domain=MICROSOFT)(as_standard("GatherND", 12))
onnx_op("Trilu", domain=MICROSOFT)(as_standard("Trilu", 14))
onnx_op("SampleOp", domain=MICROSOFT)(as_standard("Identity", 13))


@onnx_op("Pad", domain=MICROSOFT)
def pad(ctx: Importer, node: OnnxNode) -> Sequence[Operand | None]:
    """As the standard's of opset 13; the value may be a tensor of one element."""
    return as_standard("Pad", 13)(ctx, node)


@onnx_op("Range", domain=MICROSOFT)
def range_(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """The step may be absent, and is 1 then."""
    start, limit = (as_scalar(ctx, ctx.value(node, i)) for i in (0, 1))
    step = ctx.optional(node, 2)
    step = scalar(ctx, 1, start.dtype) if step is None else as_scalar(ctx, step)
    return [ctx.g.add("range", [start, limit, step], symbols=(ctx.g.symbol("count"),))]


@onnx_op("ExpandDims", domain=MICROSOFT)
def expand_dims(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x = ctx.value(node, 0)
    axis = axis_of(node, known_int(ctx, node, 1, "the axis", 0), x.tensor.rank + 1)
    return [ctx.g.add("reshape", [x], shape=(*x.shape[:axis], arith.Const(1), *x.shape[axis:]))]


@onnx_op("CDist", domain=MICROSOFT)
def pairwise_distance(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """Distances of all rows of a to all rows of b, by their differences: no cancellation."""
    a, b = ctx.value(node, 0), ctx.value(node, 1)
    metric = text_attr(node, "metric", "sqeuclidean")
    if metric not in ("sqeuclidean", "euclidean"):
        raise ctx.unsupported(node, f"the metric {metric!r}")
    rank_of(node, a, 2)
    rank_of(node, b, 2)
    rows = reshape(ctx, a, (a.shape[0], 1, a.shape[1]))
    gap = ctx.g.add("sub", [rows, b])
    op = "reduce_l2" if metric == "euclidean" else "reduce_sum_square"
    return [ctx.g.add(op, [gap], axes=(2,), keepdims=False)]


@onnx_op("Unique", domain=MICROSOFT)
def unique(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """The values in the order of their first occurrence, each element's index among them, and how
    often each occurs. Every element is compared with every other one: n² cheap steps."""
    x, g = ctx.value(node, 0), ctx.g
    rank_of(node, x, 1)
    (size,) = x.shape
    same = g.add("eq", [reshape(ctx, x, (size, 1)), x])
    bits = cast(ctx, same, dtypes.i32)
    first = g.add("argmax", [bits], axis=1, keepdims=False, select_last=False)
    is_first = g.add("eq", [first, counting(ctx, size, dtypes.i64)])
    symbol = g.symbol("unique", high=arith.as_int(size))
    found = g.add("nonzero", [is_first], symbols=(symbol,))
    places = reshape(ctx, found, (arith.Var(symbol),))
    rank = g.add("cumsum", [cast(ctx, is_first, dtypes.i64)], axis=0)
    rank = g.add("sub", [rank, scalar(ctx, 1, dtypes.i64)])
    counts = g.add("reduce_sum", [cast(ctx, same, dtypes.i64)], axes=(1,), keepdims=False)
    return [
        g.add("gather", [x, places], axis=0),
        g.add("gather", [rank, first], axis=0),
        g.add("gather", [counts, places], axis=0),
    ]


@onnx_op("NGramRepeatBlock", domain=MICROSOFT)
def block_repeats(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """The score of a token is -∞ if it would repeat an n-gram: where the n - 1 tokens before some
    token are those at the end."""
    ids, scores, n = ctx.value(node, 0), ctx.value(node, 1), count_attr(node, "ngram_size")
    batch, length = ids.shape
    places = tidy(ctx, length - n + 1)  # of n-grams
    g = ctx.g
    given = arith.as_int(length)
    if given is not None and given < n:
        return [g.add("identity", [scores])]
    same: Value | None = None
    for k in range(n - 1):
        here = column_slice(ctx, ids, arith.Const(k), places)
        final = column_slice(ctx, ids, tidy(ctx, places + k), arith.Const(1))
        equal = g.add("eq", [here, final])
        same = equal if same is None else g.add("and", [same, equal])
    low, high = (scalar(ctx, v, scores.dtype) for v in (-math.inf, math.inf))
    targets = column_slice(ctx, ids, arith.Const(n - 1), places)
    if same is None:
        updates = g.add("fill", [low], shape=(batch, places))
    else:
        updates = g.add("where", [same, low, high])
    operands = [scores, cast(ctx, targets, dtypes.i64), updates]
    return [g.add("scatter_elements", operands, axis=1, reduction="min")]


def column_slice(ctx: Importer, x: Value, start: arith.Expr, size: arith.Expr) -> Value:
    return ctx.g.add("slice", [x], starts=(0, start), sizes=(x.shape[0], size), steps=(1, 1))


# --- Fourier transforms, as matmuls -------------------------------------------------------------


def check_transform(ctx: Importer, node: OnnxNode) -> None:
    if int_attr(node, "signal_ndim", 1) != 1:
        raise ctx.unsupported(node, "a transform over more than one axis", "signal_ndim must be 1")
    if int_attr(node, "normalized", 0) or not int_attr(node, "onesided", 1):
        raise bad_model(node, "normalized must be 0 and onesided 1")


def waves(
    ctx: Importer, rows: arith.Expr, columns: arith.Expr, size: arith.Expr, to: DType
) -> list:
    """cos and sin of 2π · i · k / size, of (rows, columns); i · k modulo size is exact."""
    g, kind = ctx.g, dtypes.i64
    row = reshape(ctx, counting(ctx, rows, kind), (rows, 1))
    product = g.add("mul", [row, counting(ctx, columns, kind)])
    whole = size_value(ctx, size, kind)
    turn = cast(ctx, g.add("mod", [product, whole], fmod=False), dtypes.f64)
    angle = g.add("mul", [turn, scalar(ctx, 2 * math.pi, dtypes.f64)])
    angle = g.add("div", [angle, cast(ctx, whole, dtypes.f64)])
    return [cast(ctx, g.add(op, [angle]), to) for op in ("cos", "sin")]


@onnx_op("Rfft", domain=MICROSOFT)
def real_transform(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """The DFT of real numbers along the last axis, of which the first half is kept: real and
    imaginary parts, (…, n/2 + 1, 2)."""
    check_transform(ctx, node)
    x, g = ctx.value(node, 0), ctx.g
    size, kind = x.shape[-1], wide_dtype(x.dtype)
    kept = tidy(ctx, size // 2 + 1)
    cos, sin = waves(ctx, size, kept, size, kind)
    wide = cast(ctx, x, kind)
    real, imaginary = g.add("matmul", [wide, cos]), g.add("neg", [g.add("matmul", [wide, sin])])
    parts = [reshape(ctx, v, (*v.shape, 1)) for v in (real, imaginary)]
    return [cast(ctx, g.add("concat", parts, axis=x.tensor.rank), x.dtype)]


@onnx_op("Irfft", domain=MICROSOFT)
def inverse_transform(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """The inverse, of n = 2 · (k - 1) numbers for k complex ones: the inner ones count twice."""
    check_transform(ctx, node)
    x, g = ctx.value(node, 0), ctx.g
    count, kind = x.shape[-2], wide_dtype(x.dtype)
    size = tidy(ctx, (count - 1) * 2)
    cos, sin = waves(ctx, count, size, size, kind)
    parts = (last(ctx, cast(ctx, x, kind), arith.Const(i), 1) for i in (0, 1))
    real, imaginary = (reshape(ctx, v, v.shape[:-1]) for v in parts)
    place, end = counting(ctx, count, dtypes.i64), size_value(ctx, count - 1, dtypes.i64)
    is_inner = g.add("and", [g.add("gt", [place, scalar(ctx, 0, dtypes.i64)]),
                             g.add("lt", [place, end])])  # fmt: skip
    weight = g.add("add", [cast(ctx, is_inner, kind), scalar(ctx, 1, kind)])
    terms = [g.add("mul", [v, weight]) for v in (real, imaginary)]
    total = g.add("sub", [g.add("matmul", [terms[0], cos]), g.add("matmul", [terms[1], sin])])
    return [cast(ctx, g.add("div", [total, size_value(ctx, size, kind)]), x.dtype)]

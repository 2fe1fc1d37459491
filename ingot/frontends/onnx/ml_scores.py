"""What the classical-ML converters share: rows of features, post-transforms, labels of classes.

In: the importer and a node of `ai.onnx.ml`. Out: values. Called by trees.py, linear.py and svm.py.
Results follow ONNX Runtime where the standard leaves them open, the special cases of two classes
above all.
"""

from __future__ import annotations

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.frontends.common.elements import cast, reshape, scalar
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.registry import Importer, OnnxNode
from ingot.graph.ir import Value

ML = "ai.onnx.ml"
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
NEARLY_ZERO = 1e-7  # scores that SOFTMAX_ZERO takes for zeros


def rows_of(ctx: Importer, node: OnnxNode, to: DType | None = None) -> Value:
    """The first operand as a matrix, a row for each sample, of element type `to`."""
    x = ctx.value(node, 0)
    if x.tensor.rank == 1:
        x = reshape(ctx, x, (1, x.shape[0]))
    if x.tensor.rank != 2:
        raise bad_model(node, f"the features are {x.tensor}, not a matrix")
    return x if to is None else cast(ctx, x, to)


def floats_of(node: OnnxNode, name: str) -> np.ndarray:
    return np.asarray(node.attr(name) or [], np.float32)


def constant(ctx: Importer, values: np.ndarray, dtype: DType = dtypes.f32) -> Value:
    return ctx.g.constant(np.ascontiguousarray(values).astype(dtype.numpy))


def transform_of(node: OnnxNode) -> str:
    kind = node.attr("post_transform", "NONE")
    if kind not in TRANSFORMS:
        raise bad_model(node, f"post_transform {kind!r} is not one of {', '.join(TRANSFORMS)}")
    return kind


def transformed(ctx: Importer, scores: Value, kind: str) -> Value:
    """The post-transform of two or more scores for each row."""
    match kind:
        case "SOFTMAX":
            return ctx.g.add("softmax", [scores], axis=-1)
        case "SOFTMAX_ZERO":
            return softmax_of_nonzeros(ctx, scores)
        case "LOGISTIC":
            return ctx.g.add("sigmoid", [scores])
        case "PROBIT":
            return probit(ctx, scores)
    return scores


def transformed_single(ctx: Importer, scores: Value, kind: str) -> Value:
    """The post-transform of one score for each row: only PROBIT changes it."""
    return probit(ctx, scores) if kind == "PROBIT" else scores


def softmax_of_nonzeros(ctx: Importer, scores: Value) -> Value:
    """Softmax over the scores that are not zero; zeros stay zeros."""
    g = ctx.g
    top = g.add("reduce_max", [scores], axes=(-1,), keepdims=True)
    power = g.add("exp", [g.add("sub", [scores, top])])
    size = g.add("abs", [scores])
    counts = g.add("gt", [size, scalar(ctx, NEARLY_ZERO, scores.dtype)])
    rest = g.add("mul", [scores, g.add("exp", [g.add("neg", [top])])])
    zero = scalar(ctx, 0.0, scores.dtype)
    counted = g.add("where", [counts, power, zero])
    total = g.add("reduce_sum", [counted], axes=(-1,), keepdims=True)
    return g.add("div", [g.add("where", [counts, power, rest]), total])


def probit(ctx: Importer, p: Value) -> Value:
    """√2 · erfinv(2p - 1) by Winitzki's approximation, a = 0.147, as ONNX Runtime computes it."""
    g, dtype = ctx.g, p.dtype
    number = lambda value: scalar(ctx, value, dtype)  # noqa: E731
    x = g.add("sub", [g.add("mul", [p, number(2.0)]), number(1.0)])
    around = g.add("mul", [g.add("sub", [number(1.0), x]), g.add("add", [number(1.0), x])])
    log = g.add("log", [around])
    half = g.add("mul", [log, number(0.5)])
    v = g.add("add", [half, number(2 / (3.14159 * 0.147))])
    under = g.add("sub", [g.add("mul", [v, v]), g.add("mul", [log, number(1 / 0.147)])])
    root = g.add("sqrt", [g.add("sub", [g.add("sqrt", [under]), v])])
    negative = g.add("lt", [x, number(0.0)])
    signed = g.add("where", [negative, g.add("neg", [root]), root])
    return g.add("mul", [signed, number(2**0.5)])


def both_classes(ctx: Importer, score: Value, kind: str, is_probability: bool) -> Value:
    """Scores of both classes from one column. `is_probability`: the other class has the rest of 1;
    else it has the negative."""
    g = ctx.g
    if kind == "PROBIT":  # ONNX Runtime writes one column and leaves the other as it was
        score = probit(ctx, score)
        return g.add(
            "concat", [score, g.add("mul", [score, scalar(ctx, 0.0, score.dtype)])], axis=1
        )
    negative = g.add("neg", [score])
    if kind == "LOGISTIC":
        return g.add("sigmoid", [g.add("concat", [negative, score], axis=1)])
    other = g.add("sub", [scalar(ctx, 1.0, score.dtype), score]) if is_probability else negative
    return g.add("concat", [other, score], axis=1)


# --- labels -------------------------------------------------------------------------------------


def class_labels(node: OnnxNode, ints: str) -> np.ndarray:
    """The labels of the classes: integers, or an array of strings."""
    strings, numbers = node.attr("classlabels_strings") or [], node.attr(ints) or []
    if strings and numbers:
        raise bad_model(node, f"it has both classlabels_strings and {ints}")
    if not strings and not numbers:
        raise bad_model(node, "it has no class labels")
    return np.array(strings, object) if strings else np.array(numbers, np.int64)


def labels_at(ctx: Importer, labels: np.ndarray, index: Value) -> Value:
    """labels[index], for class indices in range."""
    if labels.dtype != object and np.array_equal(labels, np.arange(len(labels))):
        return cast(ctx, index, dtypes.i64)
    return ctx.g.add("gather", [ctx.g.constant(labels), index], axis=0)


def best_label(ctx: Importer, labels: np.ndarray, scores: Value) -> Value:
    """The label of the highest score of each row, the first of equal ones."""
    best = ctx.g.add("argmax", [scores], axis=1, keepdims=False, select_last=False)
    return labels_at(ctx, labels, best)


def sign_label(ctx: Importer, labels: np.ndarray, score: Value, above: float) -> Value:
    """labels[1] where the score of the row is above a threshold, else labels[0]."""
    flat = reshape(ctx, score, (score.shape[0],))
    is_high = ctx.g.add("gt", [flat, scalar(ctx, above, flat.dtype)])
    return labels_at(ctx, labels, cast(ctx, is_high, dtypes.i64))


def column(ctx: Importer, x: Value, index: int) -> Value:
    """One column of a matrix, as a matrix."""
    sizes = (x.shape[0], arith.Const(1))
    return ctx.g.add("slice", [x], starts=(0, index), sizes=sizes, steps=(1, 1))

"""ONNX converters of support vector machines: SVMRegressor, SVMClassifier.

In: nodes of `ai.onnx.ml`. Out: matmuls by the support vectors and their coefficients, and for
probabilities `pairwise_coupling` (ops/coupling.py). Called by walker.

A classifier of C classes has C(C-1)/2 decisions, one for each pair, as libsvm has them. A pair uses
the coefficients of its two classes' vectors; all pairs together are one matmul, by a matrix with
zeros for the vectors of other classes. So are the votes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import cast, reshape, scalar
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.ml_scores import (
    ML,
    best_label,
    both_classes,
    class_labels,
    constant,
    floats_of,
    labels_at,
    rows_of,
    transform_of,
    transformed,
    transformed_single,
)
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
SURE = 1e-7  # the least probability of a pair's decision, as in libsvm
MAX_CLASSES = 4096  # pairs of classes grow with the square


def kernel_values(
    ctx: Importer, node: OnnxNode, x: Value, vectors: np.ndarray, kind: str = ""
) -> Value:
    """The kernel of every row and vector."""
    kind = kind or node.attr("kernel_type", "LINEAR")
    if kind not in KERNELS:
        raise bad_model(node, f"kernel_type {kind!r} is not one of {', '.join(KERNELS)}")
    have = arith.as_int(x.shape[1])
    if have is not None and have != vectors.shape[1]:
        what = f"its vectors have {vectors.shape[1]} features; there are {have}"
        raise bad_model(node, what)
    given = floats_of(node, "kernel_params")
    gamma, shift, degree = (float(v) for v in (*given, *(0.0, 0.0, 0.0)[len(given) :]))
    g, number = ctx.g, lambda value: scalar(ctx, value, dtypes.f32)
    if kind == "RBF":
        squares = squared_distances(ctx, x, vectors)
        return g.add("exp", [g.add("mul", [squares, number(-gamma)])])
    dot = g.add("matmul", [x, constant(ctx, vectors.T)])
    if kind == "LINEAR":
        return dot
    inner = g.add("add", [g.add("mul", [dot, number(gamma)]), number(shift)])
    return g.add("tanh", [inner]) if kind == "SIGMOID" else g.add("pow", [inner, number(degree)])


def squared_distances(ctx: Importer, x: Value, vectors: np.ndarray) -> Value:
    """|x - v|² as |x|² - 2x·v + |v|², around the mean of the vectors: that keeps the terms small,
    which cancel."""
    g = ctx.g
    mean = vectors.mean(axis=0, dtype=np.float64)
    near = vectors - mean
    x = g.add("sub", [x, constant(ctx, mean)])
    own = g.add("reduce_sum_square", [x], axes=(1,), keepdims=True)
    dot = g.add("matmul", [x, constant(ctx, -2 * near.T)])
    total = g.add("add", [g.add("add", [dot, own]), constant(ctx, (near**2).sum(axis=1))])
    return g.add("max", [total, scalar(ctx, 0.0, dtypes.f32)])


def as_vectors(node: OnnxNode, values: np.ndarray, count: int) -> np.ndarray:
    if count < 1 or not len(values) or len(values) % count:
        raise bad_model(node, f"{len(values)} numbers are not {count} vectors")
    return values.astype(np.float64).reshape(count, -1)


@onnx_op("SVMRegressor", domain=ML)
def regressor(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x, weights, rho = (
        rows_of(ctx, node, dtypes.f32),
        floats_of(node, "coefficients"),
        floats_of(node, "rho"),
    )
    count = node.attr("n_supports", 0)
    if not len(rho):
        raise bad_model(node, "it has no rho")
    if count > 0:
        if len(weights) < count:
            raise bad_model(node, f"it has {len(weights)} coefficients for {count} vectors")
        vectors = as_vectors(node, floats_of(node, "support_vectors"), count)
        kernels = kernel_values(ctx, node, x, vectors)
        total = ctx.g.add("matmul", [kernels, constant(ctx, weights[:count].reshape(-1, 1))])
    else:
        total = kernel_values(ctx, node, x, as_vectors(node, weights, 1), node.attr("kernel_type"))
    total = ctx.g.add("add", [total, scalar(ctx, float(rho[0]), dtypes.f32)])
    if node.attr("one_class", 0):
        is_inside = ctx.g.add("gt", [total, scalar(ctx, 0.0, dtypes.f32)])
        ones = [scalar(ctx, value, dtypes.f32) for value in (1.0, -1.0)]
        return [ctx.g.add("where", [is_inside, *ones])]
    return [transformed_single(ctx, total, transform_of(node))]


@onnx_op("SVMClassifier", domain=ML)
def classifier(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    labels, kind = class_labels(node, "classlabels_ints"), transform_of(node)
    counts = np.array(node.attr("vectors_per_class") or [], np.int64)
    if not len(floats_of(node, "rho")):
        raise bad_model(node, "it has no rho")
    if not counts.sum():
        return linear_classifier(ctx, node, labels, kind)
    if len(counts) != len(labels) or (counts < 0).any() or len(labels) > MAX_CLASSES:
        raise bad_model(node, f"it has {len(labels)} classes and vectors of {len(counts)}")
    decisions = pair_decisions(ctx, node, counts)
    label = labels_at(ctx, labels, most_votes(ctx, decisions, len(labels)))
    if len(floats_of(node, "prob_a")):
        return [label, transformed(ctx, probabilities(ctx, node, decisions, len(labels)), kind)]
    if len(labels) > 2:
        return [label, transformed(ctx, decisions, kind)]
    return [label, both_classes(ctx, decisions, kind, kind != "NONE")]


def linear_classifier(
    ctx: Importer, node: OnnxNode, labels: np.ndarray, kind: str
) -> Sequence[Value]:
    """One vector of coefficients for each class, as liblinear has them."""
    weights = floats_of(node, "coefficients")
    vectors = as_vectors(node, weights, len(labels))
    scores = kernel_values(ctx, node, rows_of(ctx, node, dtypes.f32), vectors, "LINEAR")
    scores = ctx.g.add("add", [scores, scalar(ctx, float(floats_of(node, "rho")[0]), dtypes.f32)])
    label = best_label(ctx, labels, scores)
    if len(labels) == 2:  # a high score, of whichever class, is for the second
        top = ctx.g.add("reduce_max", [scores], axes=(1,), keepdims=False)
        is_positive = bool((weights >= 0).all())
        test = "ge" if is_positive else "gt"
        is_high = ctx.g.add(test, [top, scalar(ctx, 0.5 if is_positive else 0.0, dtypes.f32)])
        best = ctx.g.add("argmax", [scores], axis=1, keepdims=False, select_last=False)
        one = ctx.g.constant(np.array(1, np.int64))
        label = labels_at(ctx, labels, ctx.g.add("where", [is_high, one, best]))
    return [label, transformed(ctx, scores, kind)]


def pair_decisions(ctx: Importer, node: OnnxNode, counts: np.ndarray) -> Value:
    """A number for each row and pair of classes, above 0 for the first of the pair."""
    classes, vectors_count = len(counts), int(counts.sum())
    pairs = list(combinations(range(classes), 2))
    weights, rho = floats_of(node, "coefficients"), floats_of(node, "rho")
    if len(weights) < (classes - 1) * vectors_count or len(rho) < len(pairs):
        what = f"it has {len(weights)} coefficients and {len(rho)} rho for {len(pairs)} pairs"
        raise bad_model(node, what)
    vectors = as_vectors(node, floats_of(node, "support_vectors"), vectors_count)
    table = weights[: (classes - 1) * vectors_count].reshape(classes - 1, vectors_count)
    stops = np.cumsum(counts)
    matrix = np.zeros((vectors_count, len(pairs)))
    for column, (i, j) in enumerate(pairs):
        for own, other in ((i, j - 1), (j, i)):
            span = slice(int(stops[own] - counts[own]), int(stops[own]))
            matrix[span, column] = table[other, span]
    x = rows_of(ctx, node, dtypes.f32)
    made = ctx.g.add("matmul", [kernel_values(ctx, node, x, vectors), constant(ctx, matrix)])
    return ctx.g.add("add", [made, constant(ctx, rho[: len(pairs)])])


def most_votes(ctx: Importer, decisions: Value, classes: int) -> Value:
    """The class that wins most pairs, the first of equal ones."""
    if classes == 1:
        flat = reshape(ctx, ctx.g.add("reduce_sum", [decisions], axes=(1,), keepdims=False), (-1,))
        return cast(ctx, flat, dtypes.i64)
    pairs = list(combinations(range(classes), 2))
    first, second = (np.zeros((len(pairs), classes)) for _ in range(2))
    for row, (i, j) in enumerate(pairs):
        first[row, i] = second[row, j] = 1
    is_first = ctx.g.add("gt", [decisions, scalar(ctx, 0.0, dtypes.f32)])
    votes = ctx.g.add("matmul", [cast(ctx, is_first, dtypes.f32), constant(ctx, first - second)])
    votes = ctx.g.add("add", [votes, constant(ctx, second.sum(axis=0))])
    return ctx.g.add("argmax", [votes], axis=1, keepdims=False, select_last=False)


def probabilities(ctx: Importer, node: OnnxNode, decisions: Value, classes: int) -> Value:
    """Platt's probability of each pair, then those of the classes (ops/coupling.py)."""
    a, b = floats_of(node, "prob_a"), floats_of(node, "prob_b")
    count = classes * (classes - 1) // 2
    if len(a) != len(b) or len(a) < count:
        raise bad_model(node, f"it has {len(a)} prob_a and {len(b)} prob_b for {count} pairs")
    g = ctx.g
    line = g.add(
        "add", [g.add("mul", [decisions, constant(ctx, a[:count])]), constant(ctx, b[:count])]
    )
    chance = g.add("sigmoid", [g.add("neg", [line])])
    ends = [scalar(ctx, value, dtypes.f32) for value in (SURE, 1 - SURE)]
    return g.add("pairwise_coupling", [g.add("clip", [chance, *ends])], classes=classes)

"""ONNX converters of linear models: LinearRegressor, LinearClassifier.

In: nodes of `ai.onnx.ml`. Out: a matmul by constant coefficients, and the post-transform. Called by
walker.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.ml_scores import (
    ML,
    best_label,
    both_classes,
    class_labels,
    constant,
    floats_of,
    rows_of,
    sign_label,
    transform_of,
    transformed,
    transformed_single,
)
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value


def affine(ctx: Importer, node: OnnxNode, targets: int, offsets: np.ndarray) -> Value:
    """x · coefficientsᵀ + offsets: a score for each row and target."""
    x, coefficients = rows_of(ctx, node, dtypes.f32), floats_of(node, "coefficients")
    if targets < 1 or len(coefficients) % targets:
        raise bad_model(node, f"it has {len(coefficients)} coefficients for {targets} targets")
    features = len(coefficients) // targets
    have = arith.as_int(x.shape[1])
    if have is not None and have != features:
        raise bad_model(node, f"it has coefficients of {features} features; there are {have}")
    scores = ctx.g.add("matmul", [x, constant(ctx, coefficients.reshape(targets, features).T)])
    if not len(offsets):
        return scores
    if len(offsets) != targets:
        raise bad_model(node, f"it has {len(offsets)} intercepts for {targets} targets")
    return ctx.g.add("add", [scores, constant(ctx, offsets)])


@onnx_op("LinearRegressor", domain=ML)
def regressor(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    targets = node.attr("targets", 1)
    scores = affine(ctx, node, targets, floats_of(node, "intercepts"))
    change = transformed_single if targets == 1 else transformed
    return [change(ctx, scores, transform_of(node))]


@onnx_op("LinearClassifier", domain=ML)
def classifier(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """One score decides between two classes; of several the highest does."""
    offsets, labels = floats_of(node, "intercepts"), class_labels(node, "classlabels_ints")
    targets, kind = len(offsets) or len(labels), transform_of(node)
    scores = affine(ctx, node, targets, offsets)
    if targets > 1:
        if len(labels) < targets:
            raise bad_model(node, f"it has {len(labels)} labels for {targets} scores")
        return [best_label(ctx, labels, scores), transformed(ctx, scores, kind)]
    if len(labels) != 2:
        default = np.array(["0", "1"], object) if labels.dtype == object else np.arange(2)
        return [sign_label(ctx, default, scores, 0.0), transformed_single(ctx, scores, kind)]
    label = sign_label(ctx, labels, scores, 0.0)
    return [label, both_classes(ctx, scores, kind, is_probability=True)]

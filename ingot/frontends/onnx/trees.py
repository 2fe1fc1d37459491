"""ONNX converters of tree ensembles: TreeEnsembleRegressor, TreeEnsembleClassifier, TreeEnsemble.

In: nodes of `ai.onnx.ml`. Out: `tree_ensemble` over tables of nodes (ops/tree_tables.py), and the
post-transform. Called by walker. tree_nodes.py reads the trees.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot import dtypes
from ingot.frontends.common.elements import cast, reshape, scalar
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.ml_scores import (
    ML,
    TRANSFORMS,
    best_label,
    both_classes,
    class_labels,
    column,
    constant,
    labels_at,
    rows_of,
    sign_label,
    transform_of,
    transformed,
    transformed_single,
)
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.frontends.onnx.tree_nodes import forest_by_ids, forest_by_index, ints, numbers
from ingot.graph.ir import Value
from ingot.ops.tree_tables import Forest, make_tables

AGGREGATES = {"SUM": "add", "AVERAGE": "add", "MIN": "min", "MAX": "max"}
AGGREGATE_NUMBERS = ("AVERAGE", "SUM", "MIN", "MAX")  # of TreeEnsemble, opset 5


def scores_of(ctx: Importer, node: OnnxNode, forest: Forest, aggregate: str) -> Value:
    """The aggregated weights of each row and target, in f32, or in f64 for rows of f64."""
    if aggregate not in AGGREGATES:
        raise bad_model(node, f"aggregate_function {aggregate!r}")
    given = rows_of(ctx, node)
    x = cast(ctx, given, dtypes.f64 if given.dtype is dtypes.f64 else dtypes.f32)
    tables = make_tables(forest, x.dtype, AGGREGATES[aggregate])
    operands = [None if a is None else ctx.g.constant(a) for a in tables.arrays]
    scores = ctx.g.add("tree_ensemble", [x, *operands], **tables.attrs)
    if aggregate == "AVERAGE":
        scores = ctx.g.add("div", [scores, scalar(ctx, len(forest.roots), scores.dtype)])
    return scores


def with_base(ctx: Importer, scores: Value, base: np.ndarray) -> Value:
    """The scores plus one value for each target; none if there is another number of values."""
    if len(base) != scores.shape[1] or not base.any():
        return scores
    return ctx.g.add("add", [scores, constant(ctx, base, scores.dtype)])


@onnx_op("TreeEnsembleRegressor", domain=ML)
def regressor(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    targets = node.attr("n_targets") or int(ints(node, "target_ids").max(initial=0)) + 1
    forest = forest_by_ids(node, "target", targets)
    scores = scores_of(ctx, node, forest, node.attr("aggregate_function", "SUM"))
    scores = with_base(ctx, scores, numbers(node, "base_values"))
    change = transformed_single if targets == 1 else transformed
    return [cast(ctx, change(ctx, scores, transform_of(node)), dtypes.f32)]


@onnx_op("TreeEnsemble", since=5, domain=ML)
def ensemble(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    kind, aggregate = node.attr("post_transform", 0), node.attr("aggregate_function", 1)
    if kind not in range(len(TRANSFORMS)) or aggregate not in range(len(AGGREGATE_NUMBERS)):
        raise bad_model(node, f"post_transform {kind}, aggregate_function {aggregate}")
    forest = forest_by_index(node)
    scores = scores_of(ctx, node, forest, AGGREGATE_NUMBERS[aggregate])
    change = transformed_single if forest.targets == 1 else transformed
    return [cast(ctx, change(ctx, scores, TRANSFORMS[kind]), ctx.value(node, 0).dtype)]


@onnx_op("TreeEnsembleClassifier", domain=ML)
def classifier(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    labels = class_labels(node, "classlabels_int64s")
    forest = forest_by_ids(node, "class", len(labels))
    scores = scores_of(ctx, node, forest, "SUM")
    kind, base = transform_of(node), numbers(node, "base_values")
    if len(labels) > 2:
        scores = with_base(ctx, scores, base)
        label = best_of_weighted(ctx, forest, labels, scores, has_base=len(base) > 0)
        made = transformed(ctx, scores, kind)
    else:
        label, made = two_classes(ctx, forest, labels, scores, kind, base)
    return [label, cast(ctx, made, dtypes.f32)]


def best_of_weighted(
    ctx: Importer, forest: Forest, labels: np.ndarray, scores: Value, has_base: bool
) -> Value:
    """The label of the highest score among the classes that leaves have weights of."""
    used = np.unique(forest.weight_target)
    if has_base or len(used) in (0, len(labels)):
        return best_label(ctx, labels, scores)
    among = ctx.g.add("gather", [scores, ctx.g.constant(used.astype(np.int64))], axis=1)
    return best_label(ctx, labels[used], among)


def two_classes(
    ctx: Importer, forest: Forest, labels: np.ndarray, scores: Value, kind: str,
    base: np.ndarray,
) -> tuple[Value, Value]:  # fmt: skip
    """(label, scores) of one or two classes, as ONNX Runtime has them."""
    used = set(np.unique(forest.weight_target).tolist())
    is_positive = bool((forest.weight >= 0).all())
    is_one_sided = len(labels) == 2 and len(used) == 1
    first = column(ctx, scores, 0)
    has_second = len(labels) == 2 and 1 in used
    if len(base) == 2:
        second = column(ctx, scores, 1) if len(labels) == 2 else first
        if has_second or len(labels) == 1:
            above = ctx.g.add("add", [first, scalar(ctx, float(base[1]), first.dtype)])
            first, second = ctx.g.add("neg", [above]), above
        else:
            first = ctx.g.add("add", [first, scalar(ctx, float(base[0]), first.dtype)])
            # the second class, of which no leaf has a weight, keeps its score of 0
        has_pair, decides = True, second if has_second or len(labels) == 1 else first
    else:
        if len(base) == 1:
            first = ctx.g.add("add", [first, scalar(ctx, float(base[0]), first.dtype)])
        second = column(ctx, scores, 1) if has_second else first
        has_pair, decides = has_second, second
    label = _two_class_label(ctx, labels, decides, is_one_sided, is_positive)
    if has_pair:
        first = first if 0 in used else column(ctx, scores, 0)  # without a weight it is 0
        return label, transformed(ctx, ctx.g.add("concat", [first, second], axis=1), kind)
    if len(labels) == 1:
        return label, transformed_single(ctx, first, kind)
    return label, both_classes(ctx, first, kind, is_one_sided and is_positive)


def _two_class_label(
    ctx: Importer, labels: np.ndarray, score: Value, is_one_sided: bool, is_positive: bool
) -> Value:  # fmt: skip
    """Where leaves have weights of both classes, ONNX Runtime gives 1 or 0, whatever the labels."""
    if is_one_sided:
        return sign_label(ctx, labels, score, 0.5 if is_positive else 0.0)
    flat = reshape(ctx, score, (score.shape[0],))
    index = cast(ctx, ctx.g.add("gt", [flat, scalar(ctx, 0.0, flat.dtype)]), dtypes.i64)
    return labels_at(ctx, labels, index) if labels.dtype == object else index

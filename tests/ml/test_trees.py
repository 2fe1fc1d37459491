"""Tree ensembles against ONNX Runtime and scikit-learn, and files whose trees are broken."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from sklearn.ensemble import RandomForestRegressor

import ingot
from ingot.support.errors import IngotError
from tests.ml.ensembles import MODES, model_of, random_nodes, random_rows, random_weights

onnxruntime.set_default_logger_severity(4)
LEQ = ("BRANCH_LEQ",)
FEATURES = 5


def run_both(model: onnx.ModelProto, dtype: Any, rows: tuple[int, ...]) -> None:
    """Equal results for several batches, with one thread and with two."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    executable = ingot.compile(model, jobs=1)
    rng = np.random.default_rng(11)
    for count in rows:
        x = random_rows(rng, count, FEATURES, dtype)
        wanted, got = session.run(None, {"x": x}), executable.run(None, {"x": x})
        for have, want in zip(got, wanted, strict=True):
            if want.dtype == object:
                assert have.tolist() == want.tolist()
                continue
            assert have.dtype == want.dtype
            np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)
        for executable.threads in (1, 2):
            again = executable.run(None, {"x": x})
            assert all(np.array_equal(a, b) for a, b in zip(again, got))


# element type, modes, share of nodes whose missing values are true, depth, targets, each leaf has
# weights of all targets, aggregate, post-transform
REGRESSORS = [
    (np.float32, LEQ, 0.0, 6, 1, True, "SUM", "NONE"),
    (np.float32, ("BRANCH_LT", "BRANCH_GTE"), 0.5, 12, 3, False, "AVERAGE", "SOFTMAX"),
    (np.float64, ("BRANCH_GT",), 1.0, 4, 2, True, "MIN", "LOGISTIC"),
    (np.float32, MODES, 0.5, 9, 2, True, "MAX", "SOFTMAX_ZERO"),
]


@pytest.mark.parametrize(
    "dtype, modes, missing, depth, targets, dense, aggregate, kind", REGRESSORS
)
def test_regressor(
    dtype: Any, modes: Any, missing: float, depth: int, targets: int, dense: bool, aggregate: str,
    kind: str,
) -> None:  # fmt: skip
    rng = np.random.default_rng(depth)
    nodes = random_nodes(rng, 19, depth, FEATURES, modes, full=depth == 6, missing=missing)
    weights = random_weights(rng, nodes, tuple(range(targets)), "target", dense)
    attrs = {"aggregate_function": aggregate, "post_transform": kind, "n_targets": targets}
    base = {"base_values": [0.25] * targets}
    model = model_of("TreeEnsembleRegressor", dtype, FEATURES, 1, nodes | weights | attrs | base)
    run_both(model, dtype, (1, 7, 41, 300, 0))


# labels, classes with weights, lowest weight, base values, post-transform
CLASSIFIERS: list[tuple[list[Any], tuple[int, ...], float, int, str]] = [
    ([5, 2, 9], (0, 1, 2), -1.0, 3, "SOFTMAX"),
    (["a", "b", "c", "d"], (0, 1, 2, 3), -1.0, 0, "NONE"),
    ([4, 7], (0,), 0.0, 0, "NONE"),
    ([4, 7], (0,), -1.0, 1, "LOGISTIC"),
    (["no", "yes"], (1,), -1.0, 0, "SOFTMAX"),
    ([4, 7], (0, 1), 0.0, 2, "NONE"),
]


@pytest.mark.parametrize("labels, used, low, base, kind", CLASSIFIERS)
def test_classifier(
    labels: list[Any], used: tuple[int, ...], low: float, base: int, kind: str
) -> None:
    rng = np.random.default_rng(len(labels) + base)
    nodes = random_nodes(rng, 10, 4, FEATURES, LEQ, missing=0.0)
    attrs: dict[str, Any] = random_weights(rng, nodes, used, "class", low=low)
    attrs |= {"post_transform": kind, "base_values": [0.125 * k for k in range(1, base + 1)]}
    if not base:
        del attrs["base_values"]
    attrs["classlabels_strings" if isinstance(labels[0], str) else "classlabels_int64s"] = labels
    dtype: Any = np.int64 if base == 2 else np.float32
    run_both(model_of("TreeEnsembleClassifier", dtype, FEATURES, 2, nodes | attrs), dtype, (1, 20))


def test_double_tensors() -> None:
    """Thresholds and weights of f64, in attributes that are tensors."""
    rng = np.random.default_rng(3)
    nodes = random_nodes(rng, 3, 3, 2, LEQ)
    weights = random_weights(rng, nodes, (0,), "target")
    for group, name in ((nodes, "nodes_values"), (weights, "target_weights")):
        group[f"{name}_as_tensor"] = numpy_helper.from_array(np.array(group.pop(name), np.float64))
    del nodes["nodes_hitrates"]
    attrs = nodes | weights | {"n_targets": 1}
    run_both(model_of("TreeEnsembleRegressor", np.float64, FEATURES, 1, attrs), np.float64, (3, 9))


def test_forest_of_scikit_learn() -> None:
    """Unlimited depth; the attributes are read off the trees of scikit-learn itself."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((600, FEATURES)).astype(np.float32)
    y = x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2])
    forest = RandomForestRegressor(12, random_state=0).fit(x, y)
    attrs: dict[str, Any] = {"n_targets": 1, "aggregate_function": "AVERAGE"}
    names = ("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes",
             "nodes_truenodeids", "nodes_falsenodeids")  # fmt: skip
    weights = ("target_treeids", "target_nodeids", "target_ids", "target_weights")
    attrs |= {name: [] for name in (*names, *weights)}
    for number, estimator in enumerate(forest.estimators_):
        t = estimator.tree_
        for at in range(t.node_count):
            is_leaf = t.children_left[at] < 0
            row = (number, at, 0 if is_leaf else int(t.feature[at]), _below(t.threshold[at]),
                   "LEAF" if is_leaf else "BRANCH_LEQ", max(0, int(t.children_left[at])),
                   max(0, int(t.children_right[at])))  # fmt: skip
            for name, item in zip(names, row):
                attrs[name].append(item)
            if is_leaf:
                for name, item in zip(weights, (number, at, 0, float(t.value[at][0][0]))):
                    attrs[name].append(item)
    model = model_of("TreeEnsembleRegressor", np.float32, FEATURES, 1, attrs)
    executable = ingot.compile(model, jobs=1)
    test = rng.standard_normal((100, FEATURES)).astype(np.float32)
    for rows in (test, test[:1]):
        got = executable.run(None, {"x": rows})[0][:, 0]
        np.testing.assert_allclose(got, forest.predict(rows), rtol=1e-5, atol=1e-6)


def _below(threshold: float) -> float:
    """The largest f32 that is not above a threshold of f64."""
    near = np.float32(threshold)
    return float(near if near <= threshold else np.nextafter(near, np.float32(-np.inf)))


# --- broken files ---------------------------------------------------------------------------------


def small() -> dict[str, list[Any]]:
    """One tree: node 0 tests feature 0; nodes 1 and 2 are leaves."""
    return {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
        "nodes_values": [0.5, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0],
        "target_weights": [1.0, -1.0],
    }  # fmt: skip


BROKEN: list[tuple[dict[str, list[Any]], str]] = [
    ({"nodes_truenodeids": [0, 0, 0]}, "cycle"),
    ({"nodes_truenodeids": [2, 0, 0]}, "two parents"),
    ({"nodes_truenodeids": [9, 0, 0]}, "no child 9"),
    ({"nodes_falsenodeids": [-1, 0, 0]}, "no child -1"),
    ({"nodes_nodeids": [0, 1, 1]}, "same tree and number"),
    ({"nodes_modes": ["BRANCH_XX", "LEAF", "LEAF"]}, "BRANCH_XX"),
    ({"nodes_values": [0.5]}, "1 entries, not 3"),
    ({"nodes_featureids": [-1, 0, 0]}, "nodes_featureids"),
    ({"nodes_featureids": [2**40, 0, 0]}, "nodes_featureids"),
    ({"target_ids": [0, 1]}, "targets of weights"),
    ({"target_nodeids": [1, 7]}, "node 7 of tree 0 with a weight"),
    ({"target_weights": [1.0]}, "1 weights for 2"),
    ({"nodes_nodeids": [0, 1, 2**62]}, "too large|no child 2"),
]


@pytest.mark.parametrize("change, what", BROKEN)
def test_broken_trees(change: dict[str, list[Any]], what: str) -> None:
    model = model_of("TreeEnsembleRegressor", np.float32, 1, 1, small() | change | {"n_targets": 1})
    with pytest.raises(IngotError, match=what) as caught:
        ingot.compile(model, jobs=1)
    assert caught.value.code == "bad-model" and "'ensemble'" in caught.value.where


def test_a_feature_that_rows_do_not_have() -> None:
    attrs = small() | {"n_targets": 1, "nodes_featureids": [3, 0, 0]}
    model = model_of("TreeEnsembleRegressor", np.float32, "features", 1, attrs)
    executable = ingot.compile(model, jobs=1)
    assert executable.run(None, {"x": np.ones((2, 4), np.float32)})[0].tolist() == [[-1], [-1]]
    with pytest.raises(IngotError, match="more features than a row has"):
        executable.run(None, {"x": np.ones((2, 3), np.float32)})


def test_members_of_a_set() -> None:
    """TreeEnsemble: a test for membership, of opset 5; the set has its own order."""
    members = [3.0, -1.0, 8.0, 2.5, 2.5]
    tensor = lambda values, dtype=np.float32: numpy_helper.from_array(np.array(values, dtype))  # noqa: E731
    node = helper.make_node(
        "TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, tree_roots=[0],
        nodes_modes=tensor([6], np.uint8), nodes_featureids=[0], nodes_splits=tensor([0]),
        nodes_truenodeids=[0], nodes_trueleafs=[1], nodes_falsenodeids=[1], nodes_falseleafs=[1],
        nodes_missing_value_tracks_true=[1], membership_values=tensor([*members, np.nan]),
        leaf_targetids=[0, 0], leaf_weights=tensor([10, 20]),
    )  # fmt: skip
    values = [helper.make_tensor_value_info(n, 1, ["rows", 1]) for n in "xy"]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 5)]
    executable = ingot.compile(helper.make_model(graph, opset_imports=opsets), jobs=1)
    x = np.array([[-1], [0], [2.5], [3], [8], [9], [np.nan], [-np.inf]], np.float32)
    got = executable.run(None, {"x": x})[0][:, 0]
    assert got.tolist() == [10, 20, 10, 10, 10, 20, 10, 20]

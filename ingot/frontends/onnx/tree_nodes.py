"""Attributes of ONNX's tree ensembles → a `Forest` (ops/tree_tables.py), checked.

In: a node of TreeEnsembleRegressor, TreeEnsembleClassifier or TreeEnsemble, of an untrusted file.
Out: arrays over the nodes of all trees, or a bad-model error that names the node. Called by
frontends/onnx/trees.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.registry import OnnxNode
from ingot.ops.tree_tables import EQ, GE, GT, LE, LEAF, LT, MEMBER, NE, Forest, NotTrees

MODES = {
    "BRANCH_LEQ": LE, "BRANCH_LT": LT, "BRANCH_GTE": GE, "BRANCH_GT": GT, "BRANCH_EQ": EQ,
    "BRANCH_NEQ": NE, "LEAF": LEAF,
}  # fmt: skip
MODE_NUMBERS = (LE, LT, GE, GT, EQ, NE, MEMBER)  # of TreeEnsemble, opset 5
MAX_FEATURE = 1 << 30
MAX_TARGETS = 1 << 24


def numbers(node: OnnxNode, name: str) -> np.ndarray:
    """An attribute of floats, or the tensor that replaces it."""
    given, tensor = node.attr(name), node.attr(f"{name}_as_tensor")
    if given and tensor is not None and tensor.size:
        raise bad_model(node, f"it has both {name} and {name}_as_tensor")
    if tensor is not None and tensor.size:
        return _of_numbers(node, f"{name}_as_tensor", tensor)
    return np.asarray(given or [], np.float32)


def _of_numbers(node: OnnxNode, name: str, tensor: np.ndarray) -> np.ndarray:
    array = np.asarray(tensor).reshape(-1)
    if array.dtype.kind not in "fiu":
        raise bad_model(node, f"attribute {name!r} is a tensor of {array.dtype}")
    return array


def ints(node: OnnxNode, name: str, count: int | None = None) -> np.ndarray:
    """An attribute of integers; a bad-model error if it is not `count` long."""
    found = np.asarray(node.attr(name) if node.attr(name) is not None else [], np.int64).reshape(-1)
    if count is not None and len(found) != count:
        raise bad_model(node, f"attribute {name!r} has {len(found)} entries, not {count}")
    return found


def forest_by_ids(node: OnnxNode, weights: str, targets: int) -> Forest:
    """The trees of the older operators: nodes are named by tree and number. `weights` is the
    prefix of the attributes of leaf weights."""
    feature = ints(node, "nodes_featureids")
    n = len(feature)
    tree, number = ints(node, "nodes_treeids", n), ints(node, "nodes_nodeids", n)
    test = _modes(node, node.attr("nodes_modes") or [], n)
    value = numbers(node, "nodes_values")
    if len(value) != n:
        raise bad_model(node, f"attribute 'nodes_values' has {len(value)} entries, not {n}")
    ids = _Ids(node, tree, number)
    inner = test != LEAF
    yes, no = (np.zeros(n, np.int64) for _ in range(2))
    for side, name in ((yes, "nodes_truenodeids"), (no, "nodes_falsenodeids")):
        side[inner] = ids.find(
            tree[inner], ints(node, name, n)[inner], "a node of tree {tree} has no child {number}"
        )
    missing = ints(node, "nodes_missing_value_tracks_true")
    if len(missing) not in (0, n):
        raise bad_model(node, f"nodes_missing_value_tracks_true has {len(missing)} entries")
    leaf_tree = ints(node, f"{weights}_treeids")
    count = len(leaf_tree)
    leaf = ids.find(
        leaf_tree,
        ints(node, f"{weights}_nodeids", count),
        "node {number} of tree {tree} with a weight is missing",
    )
    target, weight = ints(node, f"{weights}_ids", count), numbers(node, f"{weights}_weights")
    if len(weight) != count:
        raise bad_model(node, f"it has {len(weight)} weights for {count} leaves")
    is_leaf = ~inner[leaf] if count else np.zeros(0, bool)  # a weight of another node is not used
    _, first = np.unique(tree, return_index=True)
    return checked(
        node,
        Forest(
            feature, value, test, yes, no, missing if len(missing) else np.zeros(n, np.int64),
            np.sort(first), leaf[is_leaf], target[is_leaf], weight[is_leaf], targets,
        ),
    )  # fmt: skip


class _Ids:
    """Positions of nodes by tree and number."""

    def __init__(self, node: OnnxNode, tree: np.ndarray, number: np.ndarray):
        self.node = node
        self.trees = np.unique(tree)
        self.low = int(number.min(initial=0))
        self.span = int(number.max(initial=0)) - self.low + 1
        if self.span * max(1, len(self.trees)) >= 1 << 62:
            raise bad_model(node, "the numbers of its nodes are too large")
        key = self.key(tree, number)
        self.order = np.argsort(key, kind="stable")
        self.keys = key[self.order]
        if (self.keys[1:] == self.keys[:-1]).any():
            raise bad_model(node, "two nodes have the same tree and number")

    def key(self, tree: np.ndarray, number: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.trees, tree) * self.span + (number - self.low)

    def find(self, tree: np.ndarray, number: np.ndarray, what: str) -> np.ndarray:
        is_known = np.isin(tree, self.trees)
        is_known &= (number >= self.low) & (number < self.low + self.span)
        key = np.where(is_known, self.key(tree, number), -1)
        at = np.minimum(np.searchsorted(self.keys, key), max(0, len(self.keys) - 1))
        found = self.keys[at] == key if len(self.keys) else np.zeros(len(key), bool)
        if not found.all():
            bad = int(np.flatnonzero(~found)[0])
            raise bad_model(self.node, what.format(number=number[bad], tree=tree[bad]))
        return self.order[at]


def _modes(node: OnnxNode, names: Sequence[str], count: int) -> np.ndarray:
    if len(names) != count:
        raise bad_model(node, f"attribute 'nodes_modes' has {len(names)} entries, not {count}")
    unknown = set(names) - MODES.keys()
    if unknown:
        raise bad_model(node, f"nodes_modes has {sorted(unknown)[0]!r}")
    return np.array([MODES[name] for name in names], np.int64)


def forest_by_index(node: OnnxNode) -> Forest:
    """The trees of TreeEnsemble: children are indices into the nodes, or into the leaves."""
    feature = ints(node, "nodes_featureids")
    n = len(feature)
    target = ints(node, "leaf_targetids")
    weight = _tensor(node, "leaf_weights", len(target))
    mode = _tensor(node, "nodes_modes", n).astype(np.int64)
    if ((mode < 0) | (mode >= len(MODE_NUMBERS))).any():
        raise bad_model(node, f"nodes_modes has {mode.max(initial=0)}, which is no mode")
    test = np.array(MODE_NUMBERS, np.int64)[mode]
    value = _tensor(node, "nodes_splits", n)
    missing = node.attr("nodes_missing_value_tracks_true")
    missing = ints(node, "nodes_missing_value_tracks_true", n) if missing else np.zeros(n, np.int64)
    roots = ints(node, "tree_roots")
    _in_range(node, roots, n, "tree_roots")
    yes, yes_leaf = _children(node, "true", n, len(target))
    no, no_leaf = _children(node, "false", n, len(target))
    # a tree of one leaf is a node whose children are the same leaf: a leaf reached twice is copied
    at = np.concatenate([np.flatnonzero(yes_leaf), np.flatnonzero(no_leaf)])
    leaves = np.concatenate([yes[yes_leaf], no[no_leaf]])
    own = n + np.arange(len(leaves))
    count = int(yes_leaf.sum())
    yes[at[:count]], no[at[count:]] = own[:count], own[count:]
    fill = lambda array, value: np.concatenate([array, np.full(len(own), value, array.dtype)])  # noqa: E731
    forest = Forest(
        fill(feature, 0), fill(value, 0), fill(test, LEAF), fill(yes, 0), fill(no, 0),
        fill(missing, 0), roots, own, target[leaves], weight[leaves], node.attr("n_targets", 1),
    )  # fmt: skip
    forest.sets = _sets(node, np.flatnonzero(test == MEMBER))
    return checked(node, forest)


def _children(node: OnnxNode, side: str, count: int, leaves: int) -> tuple[np.ndarray, np.ndarray]:
    at, is_leaf = ints(node, f"nodes_{side}nodeids", count), ints(node, f"nodes_{side}leafs", count)
    is_leaf = is_leaf.astype(bool)
    _in_range(node, at[is_leaf], leaves, f"nodes_{side}nodeids")
    _in_range(node, at[~is_leaf], count, f"nodes_{side}nodeids")
    return at.copy(), is_leaf


def _in_range(node: OnnxNode, index: np.ndarray, count: int, name: str) -> None:
    bad = index[(index < 0) | (index >= count)]
    if len(bad):
        raise bad_model(node, f"{name} has {bad[0]}, of {count}")


def _tensor(node: OnnxNode, name: str, count: int) -> np.ndarray:
    found: Any = node.attr(name)
    array = _of_numbers(node, name, np.zeros(0, np.float32) if found is None else found)
    if len(array) != count:
        raise bad_model(node, f"attribute {name!r} has {len(array)} entries, not {count}")
    return array


def _sets(node: OnnxNode, members: np.ndarray) -> dict[int, np.ndarray]:
    """The values of each MEMBER node, in order; NaN ends a set."""
    given: Any = node.attr("membership_values")
    none = np.zeros(0, np.float32)
    values = _of_numbers(node, "membership_values", none if given is None else given)
    ends = np.flatnonzero(np.isnan(values.astype(np.float64)))
    if len(ends) < len(members):
        raise bad_model(node, f"membership_values has {len(ends)} sets for {len(members)} nodes")
    starts = np.concatenate([[0], ends + 1])
    return {int(at): values[starts[k] : ends[k]] for k, at in enumerate(members)}


def checked(node: OnnxNode, forest: Forest) -> Forest:
    """The forest, if its features and targets are in range and its nodes form trees."""
    inner = forest.test != LEAF
    feature, targets = forest.feature[inner], forest.targets
    if not 1 <= targets <= MAX_TARGETS:
        raise bad_model(node, f"it has {targets} targets")
    if len(feature) and not 0 <= feature.min() <= feature.max() < MAX_FEATURE:
        raise bad_model(node, f"nodes_featureids has {feature.min()}, {feature.max()}")
    _in_range(node, forest.weight_target, targets, "the targets of weights")
    if not len(forest.roots):
        raise bad_model(node, "it has no tree")
    try:
        forest.levels()
    except NotTrees as error:
        raise bad_model(node, str(error)) from error
    return forest

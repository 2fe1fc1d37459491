"""Random tree ensembles as ONNX models, for tests: every node mode, missing values, any labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
ELEMENTS = {
    np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE, np.int64: TensorProto.INT64,
    np.int32: TensorProto.INT32,
}  # fmt: skip


def random_nodes(
    rng: np.random.Generator, trees: int, depth: int, features: int, modes: tuple[str, ...] = MODES,
    full: bool = False, missing: float = 0.5,
) -> dict[str, list[Any]]:  # fmt: skip
    """The attributes nodes_* of random trees; thresholds are integers, so that equality occurs."""
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids",
             "missing_value_tracks_true", "hitrates")  # fmt: skip
    found: dict[str, list[Any]] = {f"nodes_{name}": [] for name in names}
    for tree in range(trees):
        todo, count = [(0, depth)], 1
        while todo:
            number, left = todo.pop()
            is_leaf = not left or (not full and number and rng.random() < 0.2)
            yes, no = (0, 0) if is_leaf else (count, count + 1)
            value = 0.0 if is_leaf else float(rng.integers(-3, 4))
            row = (
                tree, number, int(rng.integers(features)), value,
                "LEAF" if is_leaf else str(rng.choice(modes)), yes, no,
                int(rng.random() < missing), 1.0,
            )  # fmt: skip
            for name, item in zip(names, row):
                found[f"nodes_{name}"].append(item)
            if not is_leaf:
                count += 2
                todo += [(yes, left - 1), (no, left - 1)]
    return found


def random_weights(
    rng: np.random.Generator, nodes: dict[str, list[Any]], targets: tuple[int, ...], prefix: str,
    per_leaf: bool = True, low: float = -1.0,
) -> dict[str, list[Any]]:  # fmt: skip
    """Leaf weights: of every target, or of one that the tree decides."""
    found: dict[str, list[Any]] = {
        f"{prefix}_{k}": [] for k in ("treeids", "nodeids", "ids", "weights")
    }
    for tree, number, mode in zip(
        nodes["nodes_treeids"], nodes["nodes_nodeids"], nodes["nodes_modes"]
    ):
        for target in targets if per_leaf else (targets[tree % len(targets)],):
            if mode == "LEAF":
                weight = float(np.float32(rng.uniform(low, 1.0)))
                for key, item in zip(found, (tree, number, target, weight)):
                    found[key].append(item)
    return found


def model_of(
    op: str, x: Any, features: int, outputs: int, attrs: dict[str, Any]
) -> onnx.ModelProto:
    """A model of one node of `ai.onnx.ml` over `rows` rows of features of numpy type `x`."""
    node = helper.make_node(
        op, ["x"], [f"y{k}" for k in range(outputs)], domain="ai.onnx.ml", name="ensemble", **attrs
    )
    is_text = bool(attrs.get("classlabels_strings"))
    kinds = [TensorProto.FLOAT]
    if outputs == 2:
        kinds = [TensorProto.STRING if is_text else TensorProto.INT64, TensorProto.FLOAT]
    made = [helper.make_tensor_value_info(f"y{k}", kind, None) for k, kind in enumerate(kinds)]
    rows = helper.make_tensor_value_info("x", ELEMENTS[x], ["rows", features])
    graph = helper.make_graph([node], "g", [rows], made)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def random_rows(rng: np.random.Generator, rows: int, features: int, dtype: Any) -> np.ndarray:
    """Values that often equal a threshold, and missing ones."""
    x = rng.integers(-4, 5, (rows, features)).astype(np.float64)
    if np.issubdtype(dtype, np.floating):
        x += rng.choice([0.0, 0.5], x.shape)
        x[rng.random(x.shape) < 0.1] = np.nan
        x[rng.random(x.shape) < 0.02] = np.inf
    return x.astype(dtype)

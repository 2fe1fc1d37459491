"""Tree ensembles: Ingot versus ONNX Runtime, the same model, batch and number of threads.

    python -m benchmarks.trees              # all models; some: python -m benchmarks.trees gb100
    python -m benchmarks.trees --seconds 2

| model | trees |
|---|---|
| gb100, gb1000 | gradient boosting of scikit-learn, depth 6, 30 features, 20,000 rows |
| forest | a random forest for regression, 100 trees of unlimited depth, the same data |
| forest3 | one for three classes |

The two take turns, and for each the smallest and the median time count. The ratio is ONNX Runtime's
time by Ingot's: above 1, Ingot is faster. Models are trained once and kept in build/trees.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import ingot

FOLDER = Path(__file__).parents[1] / "build" / "trees"
ROWS, FEATURES = 20_000, 30
BATCHES, THREADS = (1, 100, 10_000), (1, 2)
ROUNDS = 4
NODES = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids",
         "missing_value_tracks_true")  # fmt: skip


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, FEATURES)).astype(np.float32)
    noise = 0.3 * rng.standard_normal(ROWS)
    return x, x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2]) + noise


def boosted(count: int) -> onnx.ModelProto:
    from sklearn.ensemble import HistGradientBoostingRegressor

    x, y = data()
    made = HistGradientBoostingRegressor(
        max_iter=count, max_depth=6, max_leaf_nodes=None, min_samples_leaf=5, early_stopping=False
    ).fit(x, y)
    trees = []
    for (predictor,) in made._predictors:
        n = predictor.nodes
        rows = {"feature": n["feature_idx"], "value": n["num_threshold"], "yes": n["left"]}
        rows |= {"no": n["right"], "leaf": n["is_leaf"].astype(bool), "weight": n["value"][:, None]}
        trees.append(rows | {"missing": n["missing_go_to_left"]})
    base = float(np.ravel(made._baseline_prediction)[0])
    return model_of("TreeEnsembleRegressor", trees, {"n_targets": 1, "base_values": [base]})


def forest(classes: int = 0) -> onnx.ModelProto:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    x, y = data()
    kind = RandomForestClassifier if classes else RandomForestRegressor
    goal = np.digitize(y, [0.0, 1.0]) if classes else y
    made = kind(100, random_state=0, n_jobs=2).fit(x, goal)
    trees = []
    for estimator in made.estimators_:
        t = estimator.tree_
        leaf = t.children_left < 0
        weight = t.value[:, 0, :] / len(made.estimators_)
        rows = {"feature": t.feature, "value": t.threshold, "yes": t.children_left}
        trees.append(rows | {"no": t.children_right, "leaf": leaf, "weight": weight})
    if classes:
        return model_of("TreeEnsembleClassifier", trees, {"classlabels_int64s": [*range(classes)]})
    return model_of("TreeEnsembleRegressor", trees, {"n_targets": 1})


def model_of(op: str, trees: list[dict[str, Any]], attrs: dict[str, Any]) -> onnx.ModelProto:
    """The model of one node with these trees."""
    nodes: dict[str, list[Any]] = {name: [] for name in NODES}
    weights: dict[str, list[Any]] = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}
    for number, t in enumerate(trees):
        leaf, count = t["leaf"], len(t["leaf"])
        missing = t.get("missing", np.zeros(count))
        columns = (
            np.full(count, number), np.arange(count), np.where(leaf, 0, t["feature"]),
            below(np.where(leaf, 0, t["value"])), np.where(leaf, "LEAF", "BRANCH_LEQ"),
            np.where(leaf, 0, t["yes"]), np.where(leaf, 0, t["no"]), np.where(leaf, 0, missing),
        )  # fmt: skip
        for name, column in zip(NODES, columns):
            kind = float if name == "values" else str if name == "modes" else int
            nodes[name] += map(kind, column.tolist())
        targets = t["weight"].shape[1]
        at = np.repeat(np.flatnonzero(leaf), targets)
        each = np.tile(np.arange(targets), int(leaf.sum()))
        weights["treeids"] += [number] * len(at)
        weights["nodeids"] += at.tolist()
        weights["ids"] += each.tolist()
        weights["weights"] += t["weight"][at, each].astype(float).tolist()
    prefix = "target" if op == "TreeEnsembleRegressor" else "class"
    given = {f"nodes_{k}": v for k, v in nodes.items()}
    given |= {f"{prefix}_{k}": v for k, v in weights.items()}
    outputs = ["y"] if prefix == "target" else ["label", "y"]
    node = helper.make_node(op, ["x"], outputs, domain="ai.onnx.ml", **given, **attrs)
    kinds = [TensorProto.FLOAT] if len(outputs) == 1 else [TensorProto.INT64, TensorProto.FLOAT]
    infos = [helper.make_tensor_value_info(n, k, None) for n, k in zip(outputs, kinds)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", FEATURES])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph([node], "trees", [x], infos)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def below(thresholds: np.ndarray) -> np.ndarray:
    """The largest f32 that is not above each threshold of f64."""
    near = thresholds.astype(np.float32)
    return np.where(near <= thresholds, near, np.nextafter(near, np.float32(-np.inf)))


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "gb100": lambda: boosted(100), "gb1000": lambda: boosted(1000), "forest": forest,
    "forest3": lambda: forest(3),
}  # fmt: skip


def path_of(name: str) -> Path:
    path = FOLDER / f"{name}.onnx"
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        onnx.save(MODELS[name](), path)
    return path


def times(run: Callable[[], Any], seconds: float) -> list[float]:
    found, stop = [], time.perf_counter() + seconds
    while time.perf_counter() < stop or len(found) < 3:
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return found


def row(ours: Callable[[], Any], theirs: Callable[[], Any], seconds: float) -> str:
    mine: list[float] = []
    peer: list[float] = []
    ours(), theirs()
    for _ in range(ROUNDS):
        mine += times(ours, seconds / ROUNDS)
        peer += times(theirs, seconds / ROUNDS)
    low, middle = (f(peer) / f(mine) for f in (min, np.median))
    return f"{1e6 * min(mine):10.1f} {1e6 * min(peer):12.1f} {low:8.2f} {middle:8.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=[*MODELS])
    parser.add_argument("--seconds", type=float, default=0.6, help="for each runtime and row")
    args = parser.parse_args()
    onnxruntime.set_default_logger_severity(4)
    rng = np.random.default_rng(1)
    print("model    threads  batch   Ingot µs  ORT µs   ratio of min, of median")
    for name in args.models:
        for threads in THREADS:
            path = path_of(name)
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = threads
            session = onnxruntime.InferenceSession(str(path), options)
            start = time.perf_counter()
            executable = ingot.compile(path, threads=threads)
            compile_s = time.perf_counter() - start
            for batch in BATCHES:
                feeds = {"x": rng.standard_normal((batch, FEATURES)).astype(np.float32)}
                runs = (partial(each.run, None, feeds) for each in (executable, session))
                text = row(*runs, args.seconds)
                print(f"{name:8} {threads:7} {batch:6} {text}", flush=True)
            print(f"{name:8} {threads:7} compiled in {compile_s:.1f} s (or from the cache)")


if __name__ == "__main__":
    main()

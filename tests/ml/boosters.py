"""XGBoost, LightGBM and CatBoost models through Ingot, against each library's own predictions.

    python -m tests.ml.boosters xgboost lightgbm catboost

Twenty models of each library: two classes, several, regression; missing values; categories; a few
parameters each. onnxmltools converts XGBoost's and LightGBM's models, CatBoost writes its own. For
every model it prints the largest difference of a score, of Ingot and of ONNX Runtime, because a
converter may differ from its library: a model counts as right if Ingot is as near as ONNX Runtime.
Part of `make conformance-ml`.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import ingot

ROWS, FEATURES, TOLERANCE = 400, 6, 2e-4  # of scores in f32, where a library predicts in f64
SLACK = 1.5  # times ONNX Runtime's own difference
TASKS = ("binary", "multi-class", "regression")


@dataclass
class Data:
    task: str
    x: np.ndarray
    y: np.ndarray

    @property
    def test(self) -> np.ndarray:
        return self.x[ROWS // 2 :]


def data_of(task: str, missing: bool, categories: bool, seed: int) -> Data:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((ROWS, FEATURES)).astype(np.float32)
    if categories:
        x[:, 0] = rng.integers(0, 6, ROWS)
    signal = x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2]) + 0.1 * rng.standard_normal(ROWS)
    if missing:
        x[:, int(categories) :][rng.random((ROWS, FEATURES - int(categories))) < 0.15] = np.nan
    cuts = {"binary": [0.0], "multi-class": [-0.7, 0.7]}
    y = np.digitize(signal, cuts[task]) if task in cuts else signal
    return Data(task, x, y)


def plans() -> Iterator[tuple[str, bool, dict[str, Any]]]:
    """Task, missing values, and parameters that all three libraries know: eighteen of them."""
    for task in TASKS:
        for missing in (False, True):
            for trees, depth in ((5, 3), (30, 6), (80, 4)):
                yield task, missing, {"n_estimators": trees, "max_depth": depth}


def xgboost_models() -> Iterator[tuple[str, Data, onnx.ModelProto, np.ndarray]]:
    import xgboost
    from onnxmltools.convert import convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType

    kinds: list[tuple[str, bool, dict[str, Any]]] = [
        *plans(),
        ("binary", False, {"n_estimators": 20, "objective": "binary:hinge"}),
        ("regression", False, {"n_estimators": 20, "objective": "reg:tweedie"}),
    ]
    for seed, (task, missing, params) in enumerate(kinds):
        d = data_of(task, missing, False, seed)
        y = np.exp(d.y) if params.get("objective") == "reg:tweedie" else d.y
        maker = xgboost.XGBRegressor if task == "regression" else xgboost.XGBClassifier
        model = maker(n_jobs=1, **params).fit(d.x, y)
        types = [("x", FloatTensorType([None, FEATURES]))]
        made = convert_xgboost(model, initial_types=types, target_opset=15)
        want = model.predict(d.test) if task == "regression" else model.predict_proba(d.test)
        yield f"{task} {missing=} {params}", d, made, np.asarray(want)


def lightgbm_models() -> Iterator[tuple[str, Data, onnx.ModelProto, np.ndarray]]:
    import lightgbm
    from onnxmltools.convert import convert_lightgbm
    from onnxmltools.convert.common.data_types import FloatTensorType

    kinds = [(*plan, False) for plan in plans()]
    kinds += [(task, False, {"n_estimators": 20}, True) for task in ("binary", "regression")]
    for seed, (task, missing, params, categories) in enumerate(kinds):
        d = data_of(task, missing, categories, seed)
        maker = lightgbm.LGBMRegressor if task == "regression" else lightgbm.LGBMClassifier
        extra = {"categorical_feature": [0]} if categories else {}
        model = maker(n_jobs=1, verbose=-1, min_child_samples=5, **params).fit(d.x, d.y, **extra)
        types = [("x", FloatTensorType([None, FEATURES]))]
        made = convert_lightgbm(model, initial_types=types, target_opset=15, zipmap=False)
        want = model.predict(d.test) if task == "regression" else model.predict_proba(d.test)
        yield f"{task} {missing=} {categories=} {params}", d, made, np.asarray(want)


def catboost_models() -> Iterator[tuple[str, Data, onnx.ModelProto, np.ndarray]]:
    import catboost

    kinds: list[tuple[str, bool, dict[str, Any]]] = [
        *plans(),
        ("regression", False, {"n_estimators": 20, "max_depth": 8}),
        ("binary", True, {"n_estimators": 20, "max_depth": 1}),
    ]
    for seed, (task, missing, params) in enumerate(kinds):
        d = data_of(task, missing, False, seed)
        is_real = task == "regression"
        maker = catboost.CatBoostRegressor if is_real else catboost.CatBoostClassifier
        model = maker(thread_count=1, verbose=0, allow_writing_files=False, **params).fit(d.x, d.y)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            model.save_model(str(path), format="onnx")
            made = onnx.load(path)
        want = model.predict(d.test) if is_real else model.predict_proba(d.test)
        yield f"{task} {missing=} {params}", d, made, np.asarray(want)


LIBRARIES = {
    "xgboost": xgboost_models, "lightgbm": lightgbm_models, "catboost": catboost_models,
}  # fmt: skip


def scores(outputs: list[Any], like: np.ndarray) -> np.ndarray:
    """The scores among the outputs, in the shape that the library gives them."""
    found = outputs[-1]
    if isinstance(found, list):  # a ZipMap: a dictionary for each row
        found = np.array([list(row.values()) for row in found])
    return np.asarray(found, np.float64).reshape(like.shape)


def compare(library: str) -> tuple[int, int]:
    """(models that are right, models)"""
    right = count = 0
    for name, d, model, want in LIBRARIES[library]():
        feeds = {model.graph.input[0].name: d.test}
        session = onnxruntime.InferenceSession(model.SerializeToString())
        theirs = np.abs(scores(session.run(None, feeds), want) - want).max()
        count += 1
        try:
            mine = np.abs(scores(ingot.compile(model, jobs=1).run(None, feeds), want) - want).max()
        except Exception as error:
            print(f"{library} {name}: failed: {error}")
            continue
        is_right = bool(mine <= max(TOLERANCE, SLACK * theirs))
        right += is_right
        verdict = "right" if is_right else "WRONG"
        print(f"{library} {name}: {verdict}, off by {mine:.1e} (ONNX Runtime {theirs:.1e})")
    return right, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("libraries", nargs="*", default=[*LIBRARIES])
    warnings.simplefilter("ignore")
    onnxruntime.set_default_logger_severity(4)
    for library in parser.parse_args().libraries:
        right, count = compare(library)
        print(f"{library}: {right} of {count} models right")


if __name__ == "__main__":
    main()

"""Nodes of `ai.onnx.ml` against ONNX Runtime: linear models, SVMs, and what prepares features."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import ingot
from ingot.support.errors import IngotError

onnxruntime.set_default_logger_severity(4)
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
RNG = np.random.default_rng(7)
X = RNG.standard_normal((9, 4)).astype(np.float32)
LINEAR = {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0]}
INTS = RNG.integers(-3, 4, (5, 4))


@dataclass
class Case:
    op: str
    inputs: tuple[np.ndarray, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1

    def __str__(self) -> str:
        kinds = "-".join(x.dtype.name for x in self.inputs)
        words = [str(v) for v in self.attrs.values() if isinstance(v, str)]
        return "-".join([self.op, kinds, *words, str(len(self.attrs))])

    def node(self, prefix: str = "") -> onnx.NodeProto:
        names = [f"{prefix}x{k}" for k in range(len(self.inputs))]
        made = [f"{prefix}y{k}" for k in range(self.outputs)]
        return helper.make_node(
            self.op, names, made, f"{prefix}node", domain="ai.onnx.ml", **self.attrs
        )

    def types(self, node: onnx.NodeProto) -> tuple[list[Any], list[Any]]:
        """The types of inputs and outputs; the number of rows is dynamic."""
        element, info = helper.np_dtype_to_tensor_dtype, helper.make_tensor_value_info
        rows = [
            info(n, element(x.dtype), [f"{n}_{k}" if k != 1 else d for k, d in enumerate(x.shape)])
            for n, x in zip(node.input, self.inputs)
        ]
        is_text = bool(self.attrs.get("classlabels_strings"))
        labels = onnx.TensorProto.STRING if is_text else onnx.TensorProto.INT64
        kept = self.op in ("Imputer", "Binarizer", "ArrayFeatureExtractor")
        scores = element(self.inputs[0].dtype) if kept else onnx.TensorProto.FLOAT
        kinds = [labels, scores] if self.outputs == 2 else [scores]
        return rows, [info(n, kind, None) for n, kind in zip(node.output, kinds)]


def model_of(nodes: dict[str, Case]) -> onnx.ModelProto:
    """One model of all nodes, by the prefix of their names: one build for many cases."""
    made = [case.node(prefix) for prefix, case in nodes.items()]
    types = [case.types(node) for case, node in zip(nodes.values(), made)]
    inputs, outputs = ([t for pair in types for t in pair[k]] for k in (0, 1))
    graph = helper.make_graph(made, "g", inputs, outputs)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def floats(*shape: int) -> list[float]:
    return [float(v) for v in RNG.standard_normal(shape).astype(np.float32).reshape(-1)]


def svm(classes: int, per_class: int, **attrs: Any) -> dict[str, Any]:
    vectors, pairs = classes * per_class, classes * (classes - 1) // 2
    return {
        "classlabels_ints": list(range(5, 5 + classes)), "rho": floats(pairs),
        "coefficients": floats(classes - 1, vectors), "support_vectors": floats(vectors, 4),
        "vectors_per_class": [per_class] * classes, "kernel_params": [0.3, 0.5, 2.0], **attrs,
    }  # fmt: skip


def cases() -> list[Case]:
    found = [
        Case("Scaler", (X,), {"offset": floats(4), "scale": floats(4)}),
        Case("Scaler", (INTS,), {"offset": [0.5], "scale": [2.0]}),
        Case("Scaler", (X.astype(np.float64),), {"offset": floats(4), "scale": floats(4)}),
        Case("Imputer", (np.where(X > 1, np.float32(np.nan), X),),
             {"imputed_value_floats": floats(4), "replaced_value_float": float("nan")}),
        Case("Imputer", (INTS,), {"imputed_value_int64s": [9], "replaced_value_int64": -1}),
        Case("Binarizer", (X,), {"threshold": 0.2}),
        Case("ArrayFeatureExtractor", (X, np.array([2, 0, 0]))),
        Case("ArrayFeatureExtractor", (X[0], np.array([3, 1]))),
        Case("FeatureVectorizer", (INTS, INTS[:, :3]), {"inputdimensions": [4, 3]}),
        Case("FeatureVectorizer", (X, X), {"inputdimensions": [3, 6]}),
        Case("LinearRegressor", (X,), {"coefficients": floats(4), "intercepts": [0.5]}),
        Case("SVMRegressor", (X,), {"coefficients": floats(4), "rho": [0.25], **LINEAR}),
        Case("SVMClassifier", (X,), {"coefficients": floats(8), "rho": [0.1],
                                     "classlabels_ints": [4, 7], **LINEAR}, 2),
        Case("LinearClassifier", (X,), {"coefficients": floats(4), "intercepts": [0.1],
                                        "classlabels_ints": [-1, 5]}, 2),
        Case("LinearClassifier", (X,), {"coefficients": floats(4), "intercepts": [0.1],
                                        "classlabels_strings": ["no", "yes"]}, 2),
        Case("LinearClassifier", (INTS,), {"coefficients": floats(12), "intercepts": floats(3),
                                           "classlabels_strings": ["a", "b", "c"]}, 2),
    ]  # fmt: skip
    zeros = np.concatenate([X, np.zeros((1, 4), np.float32)])
    found += [Case("Normalizer", (zeros,), {"norm": norm}) for norm in ("MAX", "L1", "L2")]
    for kind in TRANSFORMS:
        weights = {"coefficients": floats(12), "intercepts": floats(3), "post_transform": kind}
        found.append(Case("LinearClassifier", (X,), {**weights, "classlabels_ints": [2, 0, 9]}, 2))
    found.append(Case("LinearRegressor", (X,), {**weights, "targets": 3}))
    found.append(Case("SVMClassifier", (X,), svm(3, 4, post_transform="SOFTMAX"), 2))
    for kind in ("NONE", "LOGISTIC"):
        one = {"coefficients": floats(4), "intercepts": [0.1], "classlabels_ints": [3, 1]}
        found.append(Case("LinearClassifier", (X,), {**one, "post_transform": kind}, 2))
        found.append(Case("SVMClassifier", (X,), svm(2, 4, post_transform=kind), 2))
    for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        vectors = {"coefficients": floats(6), "rho": [0.1], "support_vectors": floats(6, 4),
                   "n_supports": 6, "kernel_type": kernel,
                   "kernel_params": [0.3, 0.5, 2.0]}  # fmt: skip
        found.append(Case("SVMRegressor", (X,), vectors))
    chances = {"prob_a": [-abs(v) for v in floats(6)], "prob_b": floats(6)}
    found.append(Case("SVMClassifier", (X,), svm(4, 3, kernel_type="RBF", **chances), 2))
    found.append(Case("SVMRegressor", (X,), {**vectors, "one_class": 1}))
    text = {k: v for k, v in svm(3, 2).items() if k != "classlabels_ints"}
    found.append(Case("SVMClassifier", (X,), {**text, "classlabels_strings": ["p", "q", "r"]}, 2))
    return found


CASES = {f"c{k}_": case for k, case in enumerate(cases())}


@pytest.fixture(scope="module")
def results() -> tuple[dict[str, Any], dict[str, Any]]:
    """The outputs of all cases by name, Ingot's and ONNX Runtime's."""
    model = model_of(CASES)
    names = [value.name for value in model.graph.output]
    feeds = {f"{p}x{k}": x for p, case in CASES.items() for k, x in enumerate(case.inputs)}
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    got = ingot.compile(model).run(None, feeds)
    return dict(zip(names, got, strict=True)), dict(zip(names, wanted, strict=True))


@pytest.mark.parametrize("prefix", CASES, ids=lambda prefix: f"{prefix}{CASES[prefix]}")
def test_node(prefix: str, results: tuple[dict[str, Any], dict[str, Any]]) -> None:
    for k in range(CASES[prefix].outputs):
        have, want = (side[f"{prefix}y{k}"] for side in results)
        assert have.shape == want.shape
        if want.dtype == object:
            assert have.tolist() == want.tolist()
        else:
            assert have.dtype == want.dtype
            np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


BAD = [
    ("Normalizer", {"norm": "L3"}, "norm 'L3'"),
    ("LinearRegressor", {"coefficients": [1.0] * 5, "targets": 2}, "5 coefficients for 2"),
    ("LinearRegressor", {"coefficients": [1.0] * 3}, "3 features; there are 4"),
    ("SVMRegressor", {"coefficients": [1.0], "n_supports": 3, "rho": [0.0]}, "1 coefficients"),
    ("SVMRegressor", {"coefficients": [1.0] * 4}, "no rho"),
    ("Scaler", {"scale": [1.0, 2.0]}, "2 values for 4 features"),
    ("Imputer", {}, "imputed_value_floats"),
]


@pytest.mark.parametrize("op, attrs, what", BAD)
def test_bad_attributes(op: str, attrs: dict[str, Any], what: str) -> None:
    with pytest.raises(IngotError, match=what) as caught:
        ingot.compile(model_of({"": Case(op, (X,), attrs)}), jobs=1)
    assert caught.value.code == "bad-model" and "node" in caught.value.where

"""Answers beside ONNX Runtime's: what every model test compares with."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime

from tests.models.parts import Feeds


def onnxruntime_answers(model: onnx.ModelProto, feeds: Feeds) -> list[np.ndarray]:
    """Unoptimised: its optimiser may change the arithmetic (quantise activations, for one)."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """max|a-b| / max|b|, after checking that type, shape and NaNs agree."""
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if want.dtype.kind != "f":
        return 0.0 if np.array_equal(got, want) else float("inf")
    got, want = got.astype(np.float64), want.astype(np.float64)
    assert np.array_equal(np.isnan(got), np.isnan(want)), "NaNs differ"
    got, want = np.nan_to_num(got), np.nan_to_num(want)
    largest = np.abs(want).max(initial=0.0)
    return float(np.abs(got - want).max(initial=0.0) / largest) if largest else float(
        np.abs(got).max(initial=0.0)
    )


def assert_agree(got: list[np.ndarray], want: list[np.ndarray], limit: float = 1e-4) -> None:
    assert len(got) == len(want)
    for number, (a, b) in enumerate(zip(got, want)):
        error = relative_error(a, b)
        assert error <= limit, f"output {number} differs by {error:.1e} of its largest value"

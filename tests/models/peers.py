"""ONNX Runtime's answers, and what it means to agree with them. For every suite that runs models.

Its graph optimisations are off: with them it computes int8 products with rounded activations, which
is not what the file says.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime

from tests.models.parts import Feeds


def onnxruntime_answers(proto: onnx.ModelProto, feeds: Feeds, threads: int = 1) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return session.run(None, feeds)


def assert_agree(got: np.ndarray, want: np.ndarray, tolerance: float = 1e-4) -> None:
    """max|a − b| ≤ tolerance · max|b|, NaN and infinity in the same places; integers are equal."""
    assert got.shape == want.shape and got.dtype == want.dtype, (got.shape, got.dtype, want.shape)
    if want.dtype.kind != "f":
        assert np.array_equal(got, want)
        return
    a, b = got.astype(np.float64), want.astype(np.float64)
    assert np.array_equal(np.isnan(a), np.isnan(b)), "NaN in different places"
    finite = np.isfinite(b)
    assert np.array_equal(a[~finite & ~np.isnan(b)], b[~finite & ~np.isnan(b)])
    if finite.any():
        difference, scale = np.abs(a - b)[finite].max(), np.abs(b[finite]).max()
        assert difference <= tolerance * scale, f"{difference} over {scale}"


def assert_all_agree(
    got: Sequence[np.ndarray], want: Sequence[np.ndarray], tolerance: float = 1e-4
) -> None:
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert_agree(a, b, tolerance)

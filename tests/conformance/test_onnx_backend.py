"""ingot.onnx_backend: the backend protocol's functions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from ingot import onnx_backend
from ingot.support.errors import IngotError
from tests.small import answers, small_model

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


@pytest.mark.parametrize("inputs", [[X], X, {"x": X}])
def test_a_prepared_model_runs(inputs):
    outputs = onnx_backend.prepare(small_model()).run(inputs)
    for got, want in zip(outputs, answers(X), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_outputs_have_their_names():
    y, z = onnx_backend.run_model(small_model(), [X])
    outputs = onnx_backend.prepare(small_model()).run([X])
    assert outputs["y"].tobytes() == y.tobytes() and outputs["z"].tobytes() == z.tobytes()


def test_a_single_node_runs():
    node = onnx.helper.make_node("Sub", ["a", "b"], ["c"])
    (c,) = onnx_backend.run_node(node, [X, X[:1]])
    np.testing.assert_array_equal(c, X - X[:1])


def test_too_many_inputs_are_refused():
    with pytest.raises(IngotError, match="2 inputs are given, the model has 1"):
        onnx_backend.prepare(small_model()).run([X, X])


def test_devices():
    assert onnx_backend.supports_device("CPU") and not onnx_backend.supports_device("CUDA")
    with pytest.raises(IngotError, match="'CUDA' is not supported"):
        onnx_backend.prepare(small_model(), device="CUDA")

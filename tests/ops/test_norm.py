"""Normalisations against ONNX Runtime and torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ingot.graph.opdef import lookup
from tests.ops.peers import check, check_kernel, error_code, node_model

RNG = np.random.default_rng(6)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def batch_params(channels: int) -> list[np.ndarray]:
    return [real(channels), real(channels), real(channels), np.abs(real(channels)) + 0.1]


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (4, 3), (2, 3, 7)])
@pytest.mark.parametrize("opset", [7, 9, 14, 15])
def test_batch_norm(shape, opset):
    arrays = [real(*shape), *batch_params(3)]
    check("BatchNormalization", arrays, opset=opset, epsilon=1e-3, tolerance=1e-4)
    check("BatchNormalization", arrays, opset=opset, dynamic=(0,), tolerance=1e-4)


def test_batch_norm_of_each_element():
    x, shape = real(2, 3, 4), (3, 4)
    scale, bias, mean, var = real(*shape), real(*shape), real(*shape), np.abs(real(*shape)) + 0.1
    want = (x - mean) / np.sqrt(var + 1e-5) * scale + bias
    arrays = [x, scale, bias, mean, var]
    check("BatchNormalization", arrays, opset=7, spatial=0, want=[want], tolerance=1e-4)


@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_layer_norm(axis):
    x = real(2, 3, 5) + 50
    shape = x.shape[axis:] if axis else x.shape
    arrays = [x, real(*shape), real(*shape)]
    check("LayerNormalization", arrays, axis=axis, tolerance=1e-4)
    check("LayerNormalization", arrays[:2], axis=axis, dynamic=(0,) if axis else (), tolerance=1e-4)
    attrs = {"axis": axis, "epsilon": 1e-5}
    check_kernel("layer_norm", arrays, attrs, {0: (0,) if axis else ()}, 1e-4)


def test_layer_norm_gives_its_statistics():
    outputs = ("y", "mean", "inverse")
    check("LayerNormalization", [real(2, 3, 5), real(5), real(5)], outputs=outputs, tolerance=1e-4)


def test_rms_norm():
    x, scale = real(2, 3, 8), real(8)
    want = torch.nn.functional.rms_norm(
        torch.from_numpy(x), (8,), torch.from_numpy(scale), 1e-6
    ).numpy()
    check("RMSNormalization", [x, scale], opset=23, epsilon=1e-6, want=[want], tolerance=1e-4)
    check_kernel("rms_norm", [x, scale], {"axis": -1, "epsilon": 1e-6}, {0: (0, 1)})


def test_instance_norm():
    check(
        "InstanceNormalization", [real(2, 3, 4, 5), real(3), real(3)], dynamic=(2,), tolerance=1e-4
    )


@pytest.mark.parametrize("opset", [18, 21])
def test_group_norm(opset):
    x, groups = real(2, 6, 4, 3), 3
    params = [real(3 if opset == 18 else 6) for _ in range(2)]
    each = [np.repeat(p, 2) if opset == 18 else p for p in params]
    want = torch.nn.functional.group_norm(
        torch.from_numpy(x), groups, *(torch.from_numpy(p) for p in each), eps=1e-5
    ).numpy()
    arrays = [x, *params]
    check("GroupNormalization", arrays, opset=opset, num_groups=groups, want=[want], tolerance=1e-4)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_lrn(size):
    attrs = {"alpha": 0.3, "beta": 0.6, "bias": 1.5, "size": size}
    check("LRN", [real(2, 4, 3, 3)], tolerance=1e-4, **attrs)
    check_kernel("lrn", [real(2, 4, 3)], attrs, {0: (0, 1, 2)}, 1e-4)


@pytest.mark.parametrize("p", [1, 2])
def test_lp_norm(p):
    x = real(3, 4)
    x[1] = 0
    check("LpNormalization", [x], axis=1, p=p, dynamic=(0, 1))


@pytest.mark.parametrize("p", [0, 3, 1 << 32])
def test_a_norm_that_there_is_not_is_refused(p):
    """Found by the long fuzz, seed 21380: the error was one of the graph's own words."""
    model = node_model("LpNormalization", [real(3, 4)], {"p": p}, 22, ["y"], [], [])
    assert error_code(model) == "bad-model"


def test_mean_variance_norm():
    check("MeanVarianceNormalization", [real(2, 3, 4, 5)], tolerance=1e-4)


def test_a_large_mean_does_not_eat_the_variance():
    x = (np.arange(64, dtype=np.float32) + 1e5).reshape(1, 64)
    (got,) = lookup("layer_norm").reference([x], {"axis": -1, "epsilon": 0.0})
    np.testing.assert_allclose(got.std(), 1, rtol=1e-3)
    check_kernel("layer_norm", [x], {"axis": -1, "epsilon": 0.0}, {0: (0, 1)}, 1e-3)

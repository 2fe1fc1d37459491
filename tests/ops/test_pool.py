"""Pooling against ONNX Runtime and torch, rounding up and windows in the padding included."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import lookup
from ingot.graph.types import tensor
from tests.ops.peers import check, check_kernel

RNG = np.random.default_rng(5)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


CASES = [
    ((1, 3, 6, 7), {"kernel_shape": (3, 2), "strides": (2, 2)}),
    ((2, 2, 5, 5), {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 0, 1, 2)}),
    ((1, 1, 7), {"kernel_shape": (3,), "pads": (1, 1)}),
    ((1, 2, 4, 5, 3), {"kernel_shape": (2, 2, 2), "strides": (1, 2, 1)}),
    ((1, 1, 4, 4), {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1}),
    ((1, 1, 5, 6), {"kernel_shape": (2, 3), "strides": (3, 3), "ceil_mode": 1, "pads": (1,) * 4}),
    ((1, 1, 5), {"kernel_shape": (2,), "strides": (2,), "auto_pad": "SAME_LOWER"}),
    ((1, 1, 5), {"kernel_shape": (3,), "strides": (2,), "auto_pad": "SAME_UPPER"}),
]


def ours(attrs: dict) -> dict:
    kept = {k: v for k, v in attrs.items() if k not in ("kernel_shape", "auto_pad")}
    return {**kept, "kernel": attrs["kernel_shape"]}


@pytest.mark.parametrize("shape,attrs", CASES)
def test_max_pool(shape, attrs):
    check("MaxPool", [real(*shape)], **attrs)
    check("MaxPool", [real(*shape)], dynamic=(0, 2), **attrs)
    check_kernel("max_pool", [real(*shape)], ours(attrs), {0: (0, 2)})


@pytest.mark.parametrize(
    "shape,attrs,with_pads",
    [(*case, 0) for case in CASES]
    # rounding up is compared with torch: ONNX Runtime counts elements that are not there
    + [(*case, 1) for case in CASES if "ceil_mode" not in case[1]],
)
def test_average_pool(shape, attrs, with_pads):
    check("AveragePool", [real(*shape)], count_include_pad=with_pads, **attrs)
    kernel_attrs = {**ours(attrs), "count_include_pad": bool(with_pads)}
    check_kernel("avg_pool", [real(*shape)], kernel_attrs, {0: (0, 2)})


@pytest.mark.parametrize("with_pads", [False, True])
def test_average_pool_rounding_up(with_pads):
    x = real(1, 2, 5, 6)
    attrs = {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1), "ceil_mode": True}
    (got,) = lookup("avg_pool").reference([x], {**attrs, "count_include_pad": with_pads})
    want = torch.nn.functional.avg_pool2d(
        torch.from_numpy(x), 3, 2, 1, ceil_mode=True, count_include_pad=with_pads
    )
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-6)


def test_dilated_windows():
    check("MaxPool", [real(1, 1, 9)], kernel_shape=(3,), dilations=(2,), pads=(1, 2))
    attrs = {"kernel": (3,), "dilations": (2,), "pads": (2, 1), "strides": (2,)}
    check_kernel("avg_pool", [real(1, 1, 9)], attrs, {0: (2,)})
    check("AveragePool", [real(1, 1, 9)], opset=19, kernel_shape=(3,), dilations=(2,), pads=(2, 1))


@pytest.mark.parametrize("order", [0, 1])
def test_indices_of_maxima(order):
    attrs = {"kernel_shape": (2, 3), "strides": (2, 1), "pads": (0, 1, 1, 0)}
    outputs = ("y", "indices")
    check("MaxPool", [real(2, 3, 5, 6)], outputs=outputs, storage_order=order, **attrs)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pool(p):
    attrs = {"kernel_shape": (2, 2), "strides": (2, 1), "pads": (1, 0, 0, 1)}
    check("LpPool", [real(1, 2, 5, 4)], tolerance=1e-4, p=p, **attrs)


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
def test_global_pools(op):
    check(op, [real(2, 3, 4, 5)], dynamic=(2, 3), tolerance=1e-4)


def test_a_last_window_must_start_inside():
    x = tensor(dtypes.f32, 1, 1, arith.Var("h"))
    attrs = {"kernel": (1,), "strides": (2,), "ceil_mode": True, "pads": (0, 1)}
    (y,) = lookup("max_pool").infer([x], attrs)
    sizes = {h: arith.evaluate(y.shape[2], {"h": h}) for h in (2, 3, 4, 5)}
    assert sizes == {2: 1, 3: 2, 4: 2, 5: 3}

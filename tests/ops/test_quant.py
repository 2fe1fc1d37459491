"""Quantisation against ONNX Runtime: rounding, saturation, per-axis and blocked scales."""

from __future__ import annotations

import numpy as np
import pytest

from ingot import dtypes
from ingot.graph.opdef import lookup
from ingot.graph.types import tensor
from tests.ops.peers import check, check_kernel
from tests.refusal import refused

RNG = np.random.default_rng(8)
TIES = np.array([[-300, -2.5, -1.5, -0.5], [0.5, 1.5, 2.5, 300]], np.float32)


def scale(*values: float) -> np.ndarray:
    return np.array(values if len(values) > 1 else values[0], np.float32)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_ties_go_to_even_and_ends_saturate(dtype):
    check("QuantizeLinear", [TIES, scale(1), np.array(3, dtype)])


def test_default_is_u8_without_zero_point():
    check("QuantizeLinear", [TIES, scale(2)])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_per_axis(axis):
    count = TIES.shape[axis]
    scales = np.abs(RNG.standard_normal(count)).astype(np.float32) + np.float32(0.1)
    zeros = RNG.integers(-20, 20, count).astype(np.int8)
    check("QuantizeLinear", [TIES, scales, zeros], axis=axis)
    stored = RNG.integers(-128, 127, TIES.shape).astype(np.int8)
    check("DequantizeLinear", [stored, scales, zeros], axis=axis)
    attrs = {"dtype": dtypes.i8, "axis": axis}
    check_kernel("quantize_linear", [TIES, scales, zeros], attrs, {0: (0, 1), 1: (0,), 2: (0,)})


def test_blocks():
    stored = RNG.integers(-128, 127, (4, 6)).astype(np.int8)
    scales = np.abs(RNG.standard_normal((4, 3))).astype(np.float32) + np.float32(0.1)
    zeros = RNG.integers(-20, 20, (4, 3)).astype(np.int8)
    want = (stored.astype(np.int32) - np.repeat(zeros, 2, 1)) * np.repeat(scales, 2, 1)
    want = [want.astype(np.float32)]
    check("DequantizeLinear", [stored, scales, zeros], opset=21, axis=1, block_size=2, want=want)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
def test_dequantize(dtype):
    info = np.iinfo(dtype)
    stored = RNG.integers(info.min // 2, info.max // 2, (3, 4)).astype(dtype)
    zero = None if dtype is np.int32 else np.array(100, dtype)
    arrays = [stored, scale(0.1), zero][: 2 if zero is None else 3]
    check("DequantizeLinear", arrays, dynamic=(0,))


def test_half_scales_give_half():
    stored = RNG.integers(-128, 127, (3, 4)).astype(np.int8)
    arrays = [stored, np.array(0.1, np.float16), np.array(5, np.int8)]
    check("DequantizeLinear", arrays, opset=19, tolerance=1e-3)


@pytest.mark.parametrize("values", [[1, 2, 6], [-3, 0, 4], [-5, -2], [0, 0]])
def test_dynamic_quantize(values):
    outputs = ("y", "scale", "zero")
    x = np.array(values, np.float32)
    if x.any():
        check("DynamicQuantizeLinear", [x], outputs=outputs)
    else:  # no range: any scale would do, and 1 is no trouble
        want = [np.zeros(2, np.uint8), scale(1), np.array(0, np.uint8)]
        check("DynamicQuantizeLinear", [x], outputs=outputs, want=want)


def test_nan_becomes_the_zero_point_less_nothing():
    x = np.array([np.nan, np.inf, -np.inf], np.float32)
    attrs = {"dtype": dtypes.i8}
    (got,) = lookup("quantize_linear").reference([x, scale(1)], attrs)
    assert got.tolist() == [0, 127, -128]
    check_kernel("quantize_linear", [x, scale(1)], attrs, {0: (0,)})


def test_misfitting_scale_is_refused():
    types = [tensor(dtypes.f32, 2, 4), tensor(dtypes.f32, 3)]
    with refused("bad-type", "f32[3]", "axis 1", "f32[2, 4]", where="quantize_linear", hint=False):
        lookup("quantize_linear").infer(types, {"dtype": dtypes.u8, "axis": 1})

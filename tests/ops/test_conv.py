"""Convolutions against ONNX Runtime and torch; kernels and padding of dynamic size."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import lookup
from ingot.graph.types import tensor
from tests.ops.peers import check, check_kernel
from tests.refusal import refused

RNG = np.random.default_rng(4)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


CASES = [
    ((1, 3, 6, 7), (4, 3, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((2, 4, 7, 6), (6, 2, 3, 2), {"group": 2, "strides": (2, 1)}),
    ((1, 4, 6, 6), (4, 1, 3, 3), {"group": 4, "pads": (0, 1, 2, 0)}),
    ((1, 2, 9), (3, 2, 3), {"pads": (2, 1), "dilations": (2,), "strides": (3,)}),
    ((1, 2, 4, 5, 3), (3, 2, 2, 3, 1), {"pads": (1, 0, 0, 0, 1, 1)}),
]


@pytest.mark.parametrize("x,w,attrs", CASES)
def test_conv(x, w, attrs):
    check("Conv", [real(*x), real(*w), real(w[0])], tolerance=1e-4, **attrs)
    check("Conv", [real(*x), real(*w)], tolerance=1e-4, dynamic=(0, 2), **attrs)
    space = range(2, len(x))
    check_kernel("conv", [real(*x), real(*w), real(w[0])], attrs, {0: (0, *space)}, 1e-4)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("size", [5, 6])
@pytest.mark.parametrize("stride", [1, 2])
def test_auto_pad(mode, size, stride):
    arrays = [real(1, 2, size), real(3, 2, 4)]
    attrs = {"auto_pad": mode, "strides": (stride,)}
    check("Conv", arrays, tolerance=1e-4, **attrs)
    check("Conv", arrays, tolerance=1e-4, dynamic=(2,), **attrs)


def test_same_padding_with_stride_one_keeps_a_symbolic_size():
    x = tensor(dtypes.f32, 1, 3, arith.Var("h"), arith.Var("w"))
    attrs = {"pads": (1, 2, 1, 2), "strides": (1, 1), "dilations": (1, 2)}
    (y,) = lookup("conv").infer([x, tensor(dtypes.f32, 8, 3, 3, 3)], attrs)
    assert y.shape == (1, 8, arith.Var("h"), arith.Var("w"))


def test_a_dynamic_dimension_divided_by_a_stride():
    """Accesses to the padded copy and to the output are proven disjoint."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT16, (1, 32, "h", "w"))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT16, None)
    weights = numpy_helper.from_array(real(16, 32, 1, 4).astype(np.float16), "filters")
    conv = {"pads": [1, 0, 1, 0], "strides": [3, 1]}
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Conv", ["a", "filters"], ["y"], **conv),
    ]
    graph = helper.make_graph(nodes, "open", [x], [y], [weights])
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
    exe, peer = ingot.compile(model), onnxruntime.InferenceSession(model)
    for height, width in ((5, 9), (1, 4), (30, 17)):
        feeds = {"x": real(1, 32, height, width).astype(np.float16)}
        (want,), (got,) = peer.run(None, feeds), exe(**feeds)
        np.testing.assert_allclose(got, want, rtol=5e-3, atol=5e-3 * max(1, np.abs(want).max()))


def test_torch_agrees():
    x, w, b = real(2, 6, 9, 8), real(4, 3, 3, 2), real(4)
    attrs = {"strides": (2, 1), "pads": (1, 1, 1, 1), "dilations": (1, 2), "group": 2}
    (got,) = lookup("conv").reference([x, w, b], attrs)
    want = torch.nn.functional.conv2d(
        *(torch.from_numpy(a) for a in (x, w, b)),
        stride=(2, 1),
        padding=1,
        dilation=(1, 2),
        groups=2,
    )
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-4, atol=1e-4)


def test_integer_conv():
    x = RNG.integers(0, 255, (1, 2, 5, 5)).astype(np.uint8)
    w = RNG.integers(0, 255, (3, 2, 3, 3)).astype(np.uint8)
    zero_x, zero_w = np.array(7, np.uint8), np.array(100, np.uint8)
    check("ConvInteger", [x, w, zero_x, zero_w], pads=(1, 1, 1, 1))
    check("ConvInteger", [x, w], strides=(2, 2))


@pytest.mark.parametrize("per_channel", [False, True])
def test_quantised_conv(per_channel):
    x = RNG.integers(0, 255, (1, 2, 5, 5)).astype(np.uint8)
    w = RNG.integers(-64, 63, (3, 2, 3, 3)).astype(np.int8)  # 7 bits: see test_matmul
    channels = (3,) if per_channel else ()
    scale_w = np.full(channels, 0.01, np.float32) * (1 + np.arange(3) if per_channel else 1)
    zero_w = np.zeros(channels, np.int8)
    bias = np.array([500, -700, 90], np.int32)
    parts = [np.array(0.1, np.float32), np.array(128, np.uint8)]
    out = [np.array(0.5, np.float32), np.array(100, np.uint8)]
    arrays = [x, *parts, w, scale_w.astype(np.float32), zero_w, *out, bias]
    check("QLinearConv", arrays, pads=(1, 1, 1, 1))


@pytest.mark.parametrize(
    "attrs,facts",
    [
        ({"group": 2}, (3, "f32[4, 3, 3, 3]", 2)),
        ({"strides": (1,)}, ("strides", 2)),
        ({"strides": (0, 1)}, ("strides", "(0, 1)")),
    ],
)
def test_misfits_are_refused(attrs, facts):
    types = [tensor(dtypes.f32, 1, 3, 5, 5), tensor(dtypes.f32, 4, 3, 3, 3)]
    with refused("bad-type", *facts, where="conv", hint=False):
        lookup("conv").infer(types, attrs)

"""Transposed convolutions: the arithmetic of phases, and compiled code against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import ingot
from ingot import dtypes
from ingot.graph.builder import GraphBuilder
from ingot.graph.store import ConstantStore
from ingot.graph.types import tensor
from ingot.ops.conv_transpose import phase
from ingot.passes.decompose import decompose
from tests.ops.peers import check

RNG = np.random.default_rng(4)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


CASES = [
    ((1, 2, 3, 4), (2, 3, 3, 3), {}),
    ((1, 2, 3, 3), (2, 3, 3, 2), {"strides": (2, 3), "pads": (1, 0, 0, 1)}),
    ((1, 4, 3), (4, 2, 3), {"group": 2, "strides": (2,), "output_padding": (1,)}),
    ((2, 2, 3, 3), (2, 1, 2, 2), {"dilations": (2, 3), "pads": (1, 2, 1, 0)}),
    ((1, 1, 2, 2, 2), (1, 2, 2, 1, 3), {"strides": (2, 1, 2)}),
    ((1, 2, 5), (2, 2, 3), {"strides": (2,), "output_shape": (9,)}),
    ((1, 2, 5), (2, 2, 3), {"strides": (2,), "auto_pad": "SAME_UPPER"}),
    ((1, 2, 5), (2, 2, 4), {"strides": (3,), "auto_pad": "SAME_LOWER"}),
]


@pytest.mark.parametrize("x,w,attrs", CASES)
def test_conv_transpose(x, w, attrs):
    channels = w[1] * attrs.get("group", 1)
    check("ConvTranspose", [real(*x), real(*w), real(channels)], tolerance=1e-4, **attrs)
    check("ConvTranspose", [real(*x), real(*w)], tolerance=1e-4, dynamic=(0,), **attrs)


def test_the_size_of_x_may_be_unknown():
    attrs = {"strides": (2,), "pads": (1, 0), "output_padding": (1,)}
    arrays = [real(2, 2, 5), real(2, 3, 4)]
    check("ConvTranspose", arrays, tolerance=1e-4, dynamic=(0, 2), **attrs)
    # the cropped amount is dynamic too
    attrs = {"strides": (2,), "output_shape": (9,)}
    check("ConvTranspose", [real(1, 2, 5), real(2, 2, 3)], tolerance=1e-4, dynamic=(2,), **attrs)


@pytest.mark.parametrize("stride", range(1, 7))
@pytest.mark.parametrize("dilation", range(1, 7))
def test_phases_share_out_the_taps(stride, dilation):
    for kernel in range(1, 6):
        phases = [phase(kernel, stride, dilation, offset) for offset in range(stride)]
        found = [p.tap + j * p.skip for p in phases for j in range(p.taps)]
        assert sorted(found) == list(range(kernel))
        for offset, p in enumerate(phases):
            for j in range(p.taps):
                i, tap = p.first - j * p.step, p.tap + j * p.skip
                assert i * stride + tap * dilation == offset


def pieces(x: tuple[int, ...], w: tuple[int, ...], **attrs) -> list[str]:
    """The operators that one node becomes."""
    g = GraphBuilder("g", ConstantStore())
    operands = [g.input("x", tensor(dtypes.f32, *x)), g.input("w", tensor(dtypes.f32, *w))]
    whole = g.finish([g.add("conv_transpose", operands, **attrs)])
    return [n.op for n in decompose(whole, g.store).nodes if n.op not in ("reshape", "transpose")]


def test_phases_of_as_many_taps_are_channels_of_one_convolution():
    made = pieces((1, 8, 20, 20), (8, 4, 2, 2), strides=(2, 2))
    assert made == ["slice"] * 4 + ["concat", "conv", "interleave"]


def test_a_stride_of_one_is_one_convolution():
    assert pieces((1, 8, 20, 20), (8, 4, 3, 3), pads=(1,) * 4) == ["slice", "conv"]


def test_phases_of_unequal_taps_are_convolutions_of_their_own():
    made = pieces((1, 8, 20), (8, 4, 5), strides=(4,))
    assert made == ["slice", "conv", *["slice"] * 3, "concat", "conv", "interleave"]


def test_small_maps_make_no_outputs_that_nobody_reads():
    made = pieces((1, 8, 4, 4), (8, 4, 4, 4), strides=(2, 2), pads=(1,) * 4)
    assert made == ["slice", "conv"] * 4 + ["interleave"]


def test_in_groups_each_phase_is_a_convolution_unless_there_are_many():
    made = pieces((1, 8, 20, 20), (8, 1, 2, 2), strides=(2, 2), group=8)
    assert made == ["slice", "conv"] * 4 + ["interleave"]
    made = pieces((1, 8, 20, 20), (8, 1, 8, 8), strides=(4, 4), group=8)
    assert made == ["slice"] * 16 + ["concat", "conv", "interleave"]


# --- compiled ------------------------------------------------------------------------------------


def random_case(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict]:
    rng = np.random.default_rng(seed)
    rank, group = int(rng.choice([1, 2, 2, 3])), int(rng.choice([1, 1, 2, 4]))
    kernel, strides = rng.integers(1, 5, rank), rng.integers(1, 4, rank)
    dilations, space = rng.integers(1, 3, rank), rng.integers(1, 9, rank)
    full = (space - 1) * strides + (kernel - 1) * dilations + 1
    extra = rng.integers(0, strides)  # ONNX Runtime wants no more
    begins = rng.integers(0, np.minimum(full, 4))
    ends = rng.integers(0, np.minimum(full - begins, 4))
    ins, outs = group * int(rng.choice([1, 3, 8])), int(rng.choice([1, 4, 17]))
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in (
        (int(rng.integers(1, 3)), ins, *space), (ins, outs, *kernel), (outs * group,))]  # fmt: skip
    named = {"strides": strides, "dilations": dilations, "output_padding": extra,
             "pads": np.concatenate([begins, ends])}  # fmt: skip
    attrs = {k: [int(n) for n in v] for k, v in named.items()} | {"group": group}
    return *arrays, attrs  # type: ignore[return-value]


def model_of(cases: list, relu: bool) -> tuple[bytes, dict[str, np.ndarray]]:
    """One model of all cases; the weights of every other one are inputs, sizes of some
    are dynamic."""
    nodes, inputs, constants, outputs, feeds = [], [], [], [], {}
    for i, (x, w, bias, attrs) in enumerate(cases):
        names = [f"x{i}", f"w{i}", f"b{i}"]
        given = 2 if i % 2 else 1
        for name, array in zip(names[:given], (x, w)):
            is_open = name == f"x{i}" and i % 3 == 0 and x.ndim < 4
            shape = [f"{name}_{k}" if k > 1 and is_open else n for k, n in enumerate(array.shape)]
            inputs.append(helper.make_tensor_value_info(name, 1, shape))
            feeds[name] = array
        for name, array in list(zip(names, (x, w, bias)))[given:]:
            constants.append(numpy_helper.from_array(array, name))
        nodes.append(helper.make_node("ConvTranspose", names, [f"c{i}"], **attrs))
        nodes.append(helper.make_node("Relu" if relu else "Identity", [f"c{i}"], [f"y{i}"]))
        outputs.append(helper.make_empty_tensor_value_info(f"y{i}"))
    graph = helper.make_graph(nodes, "many", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 10
    return model.SerializeToString(), feeds


@pytest.mark.parametrize("first", [0, 6, 14])
def test_compiled_as_onnxruntime(first):
    cases = [random_case(seed) for seed in range(first, first + 6)]
    model, feeds = model_of(cases, relu=bool(first))
    got = ingot.compile(model)(**feeds)
    want = onnxruntime.InferenceSession(model).run(None, feeds)
    for i, (a, b) in enumerate(zip(got, want)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4, err_msg=str(cases[i][3]))


def test_infinities_stay_where_they_fall():
    """A phase uses only its own taps: no multiplications by inserted zeros."""
    x, w = np.ones((1, 1, 3), np.float32), real(1, 1, 2)
    x[0, 0, 1] = np.inf
    g = GraphBuilder("g", ConstantStore())
    types = {"x": tensor(dtypes.f32, 1, 1, 3), "w": tensor(dtypes.f32, 1, 1, 2)}
    y = g.add("conv_transpose", [g.input(*each) for each in types.items()], strides=(3,))
    (got,) = ingot.compile(g.finish([y]))(x=x, w=w)
    assert np.isinf(got[0, 0, 3:5]).all() and np.isfinite(np.delete(got[0, 0], [3, 4])).all()

"""Convolutions in groups, compiled, against ONNX Runtime: all kinds of sizes, odd ones too."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import ingot

GROUP_SIZES = (2, 3, 4, 5, 6, 8, 11, 12, 16, 20, 24, 32)  # output channels; 11 divides into nothing


def random_case(rng: np.random.Generator, per_group: int) -> tuple[tuple, tuple, dict]:
    """The shape of x, that of the weights, attributes."""
    rank, group = int(rng.choice([1, 2, 2, 3])), int(rng.integers(2, 5))
    ins, kernel = int(rng.choice([1, 3, 4, 16])), rng.integers(1, 4, rank)
    strides, dilations = rng.integers(1, 3, rank), rng.integers(1, 3, rank)
    space = (kernel - 1) * dilations + rng.integers(1, {1: 60, 2: 15, 3: 6}[rank], rank)
    named = {"strides": strides, "dilations": dilations, "pads": rng.integers(0, 3, 2 * rank)}
    attrs = {name: [int(n) for n in values] for name, values in named.items()}
    x = (int(rng.integers(1, 3)), ins * group, *(int(n) for n in space))
    return x, (per_group * group, ins, *(int(n) for n in kernel)), {**attrs, "group": group}


def model_of(rng: np.random.Generator, cases: list) -> tuple[bytes, dict[str, np.ndarray]]:
    """One model of all cases: a bias and an epilogue; sizes of x are dynamic in every third."""
    nodes, inputs, constants, outputs, feeds = [], [], [], [], {}
    for i, (x, w, attrs) in enumerate(cases):
        shape = [
            f"n{i}_{k}" if k != 1 and i % 3 == 0 and len(x) < 5 else n for k, n in enumerate(x)
        ]
        inputs.append(helper.make_tensor_value_info(f"x{i}", 1, shape))
        feeds[f"x{i}"] = rng.standard_normal(x).astype(np.float32)
        for name, size in ((f"w{i}", w), (f"b{i}", w[:1])):
            constants.append(numpy_helper.from_array(rng.standard_normal(size, np.float32), name))
        nodes.append(helper.make_node("Conv", [f"x{i}", f"w{i}", f"b{i}"], [f"c{i}"], **attrs))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"y{i}"]))
        outputs.append(helper.make_empty_tensor_value_info(f"y{i}"))
    graph = helper.make_graph(nodes, "many", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 10
    return model.SerializeToString(), feeds


@pytest.mark.parametrize("seed", [0, 1])
def test_compiled_as_onnxruntime(seed):
    rng = np.random.default_rng(seed)
    cases = [random_case(rng, per_group) for per_group in GROUP_SIZES[seed::2]]
    model, feeds = model_of(rng, cases)
    got = ingot.compile(model)(**feeds)
    want = onnxruntime.InferenceSession(model).run(None, feeds)
    for case, a, b in zip(cases, got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4, err_msg=str(case))


def test_groups_do_not_touch_each_other():
    """NaN in one group stays there: groups are not merged by zero padding."""
    rng = np.random.default_rng(2)
    model, feeds = model_of(rng, [((1, 16, 9, 9), (16, 4, 3, 3), {"group": 4})])
    feeds["x0"][:, 4:8] = np.nan
    (got,) = ingot.compile(model)(**feeds)
    assert np.isnan(got[:, 4:8]).all()
    assert np.isfinite(got[:, :4]).all() and np.isfinite(got[:, 8:]).all()

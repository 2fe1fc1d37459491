"""BatchNormalization while training, of every version, compiled, against the formulas."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import ingot

LONG = pytest.mark.long
NAMES = ["x", "scale", "bias", "mean", "var"]


def compiled(arrays, outputs, opset, dynamic=False, **attrs) -> ingot.Executable:
    infos = []
    for name, a in zip(NAMES, arrays):
        kind = helper.np_dtype_to_tensor_dtype(a.dtype)
        is_free = dynamic and name == "x"
        shape = [f"d{i}" if is_free and i != 1 else n for i, n in enumerate(a.shape)]
        infos.append(helper.make_tensor_value_info(name, kind, shape))
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    node = helper.make_node("BatchNormalization", NAMES, outputs, name="bn", **attrs)
    graph = helper.make_graph([node], "g", infos, results)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return ingot.compile(made, jobs=1)


def given(shape, size, dtype=np.float32, kind=None):
    rng = np.random.default_rng(3)
    x = (rng.standard_normal(shape) * 2 + 5).astype(dtype)
    rest = [rng.uniform(0.5, 2, size).astype(kind or dtype) for _ in range(4)]
    return [x, *rest]


def expected(arrays, momentum, epsilon, axes):
    """Y, the running mean and variance, the batch's own."""
    x, scale, bias, mean, var = (a.astype(np.float64) for a in arrays)
    m, v = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    fit = [d if i not in axes else 1 for i, d in enumerate(x.shape)]
    y = (x - m) / np.sqrt(v + epsilon) * scale.reshape(fit) + bias.reshape(fit)
    own = [m.reshape(scale.shape), v.reshape(scale.shape)]
    running = [old * momentum + new * (1 - momentum) for old, new in zip((mean, var), own)]
    return [y, *running, *own]


@pytest.mark.parametrize(("opset", "attrs", "count"), [
    (7, {}, 5), (15, {"training_mode": 1}, 3), pytest.param(6, {"is_test": 0}, 5, marks=LONG),
    pytest.param(9, {}, 3, marks=LONG), pytest.param(14, {"training_mode": 1}, 1, marks=LONG),
])  # fmt: skip
def test_versions(opset, attrs, count):
    arrays = given((4, 3, 5, 2), 3)
    outputs = [f"y{i}" for i in range(count)]
    exe = compiled(arrays, outputs, opset, dynamic=True, momentum=0.7, epsilon=1e-2, **attrs)
    wanted = expected(arrays, 0.7, 1e-2, (0, 2, 3))
    for got, want in zip(exe(*arrays), wanted):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@LONG
def test_mixed_types_are_widened():
    arrays = given((6, 2, 7), 2, np.float16, np.float32)
    exe = compiled(arrays, ["y", "m", "v"], 15, training_mode=1)
    y, m, v = exe(*arrays)
    wanted = expected(arrays, 0.9, 1e-5, (0, 2))
    assert (y.dtype, m.dtype, v.dtype) == (np.float16, np.float32, np.float32)
    for got, want, tolerance in zip((y, m, v), wanted, (4e-3, 1e-5, 1e-5)):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@LONG
def test_statistics_of_each_element():
    arrays = given((9, 2, 3), (2, 3), np.float64)
    exe = compiled(arrays, ["y", "m", "v"], 7, spatial=0)
    for got, want in zip(exe(*arrays), expected(arrays, 0.9, 1e-5, (0,))):
        np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-7)


def test_statistics_without_training_are_refused():
    arrays = given((4, 3), 3)
    with pytest.raises(ingot.IngotError, match="training_mode is 0"):
        compiled(arrays, ["y", "m", "v"], 15)

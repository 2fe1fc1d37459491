"""Short sequences with dynamic sizes: a reflected border, strided convolutions down to a few steps,
a squeeze of the last step and one step of an LSTM, as in a voice detector. Versus ONNX Runtime."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot.support.errors import IngotError
from tests.refusal import check

UNITS = 24
CALLS = ((1, 96), (3, 96), (1, 97), (2, 64), (1, 127), (5, 80), (1, 96))  # (batch, length)


def weight(*shape: int) -> np.ndarray:
    seed = np.random.default_rng(shape)
    return (seed.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


@cache
def detector() -> onnx.ModelProto:
    constants = {
        "pads": np.array([0, 0, 0, 0, 0, 16]), "w0": weight(40, 1, 32), "w1": weight(48, 40, 3),
        "b1": weight(48), "w2": weight(UNITS, 48, 3), "last": np.array([2]),
        "first": np.array([0]), "w": weight(1, 4 * UNITS, UNITS), "r": weight(1, 4 * UNITS, UNITS),
    }  # fmt: skip
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["p"], mode="reflect"),
        helper.make_node("Conv", ["p", "w0"], ["c0"], strides=[16]),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1", "b1"], ["c1"], strides=[2], pads=[1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], strides=[4], pads=[1, 1]),
        helper.make_node("Squeeze", ["c2", "last"], ["s"]),
        helper.make_node("Unsqueeze", ["s", "first"], ["u"]),
        helper.make_node("LSTM", ["u", "w", "r", "", "", "h", "c"], ["", "h_new", "c_new"],
                         hidden_size=UNITS),
    ]  # fmt: skip
    state = [1, "batch", UNITS]
    ports = {"x": ["batch", 1, "length"], "h": state, "c": state, "h_new": state, "c_new": state}
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in ports.items()]
    initial = [numpy_helper.from_array(v, name) for name, v in constants.items()]
    graph = helper.make_graph(nodes, "detector", values[:3], values[3:], initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def feeds(batch: int, length: int) -> dict[str, np.ndarray]:
    seed = np.random.default_rng((batch, length))
    shapes = {"x": (batch, 1, length), "h": (1, batch, UNITS), "c": (1, batch, UNITS)}
    return {n: seed.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


@cache
def expected(batch: int, length: int) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(detector().SerializeToString())
    return session.run(None, feeds(batch, length))


def test_sizes_may_change_from_call_to_call():
    exe = ingot.compile(detector())
    for exe.threads in (1, 2, 3):
        for sizes in CALLS:
            for got, want in zip(exe.run(None, feeds(*sizes)), expected(*sizes)):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=str(sizes))


def test_an_empty_batch_between_others():
    exe = ingot.compile(detector(), threads=2)
    for batch in (1, 0, 3):
        got = exe.run(None, feeds(batch, 96))
        assert [a.shape for a in got] == [(1, batch, UNITS)] * 2
        for mine, want in zip(got, expected(batch, 96) if batch else got):
            np.testing.assert_allclose(mine, want, rtol=1e-4, atol=1e-5)


def test_several_callers_with_different_sizes_share_an_executable():
    exe = ingot.compile(detector(), threads=2)

    def call(number: int) -> None:
        sizes = CALLS[number % len(CALLS)]
        for got, want in zip(exe.run(None, feeds(*sizes)), expected(*sizes)):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=str(sizes))

    with ThreadPoolExecutor(4) as callers:
        list(callers.map(call, range(200)))


def test_no_bit_depends_on_the_threads():
    exe, bits = ingot.compile(detector(), threads=1), {}
    for exe.threads in (1, 2, 3):
        for sizes in CALLS:
            got = [a.tobytes() for a in exe.run(None, feeds(*sizes))]
            assert bits.setdefault(sizes, got) == got, sizes


def test_a_squeezed_axis_that_is_longer_than_1_is_refused():
    exe = ingot.compile(detector())
    with pytest.raises(IngotError) as caught:
        exe.run(None, feeds(1, 400))
    check(caught.value, "run-failed", "number of elements", hint=False)
    np.testing.assert_allclose(
        exe.run(None, feeds(1, 96))[0], expected(1, 96)[0], rtol=1e-4, atol=1e-5
    )

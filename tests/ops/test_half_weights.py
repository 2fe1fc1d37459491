"""GEMMs of f16 and bf16, compiled: weights in 16 bits where rows are few, each activation converted
once, and every row count of a dynamic batch."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ingot
from ingot import backends, pipeline
from ingot.loops import ir, visit
from tests.ops.compiled_nodes import Interpreted, model, node

HALVES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
K, N = 520, 720  # no multiple of a panel


def weights(numpy_type):
    return np.random.default_rng(0).standard_normal((K, N), np.float32).astype(numpy_type)


def skip_if_not_here(target):
    backend = backends.find(target)
    if why := backend.why_not_here(backend.target(target)):
        pytest.skip(why)


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("stored_as", ["half", "f32"])
@pytest.mark.parametrize("target", ["cpu", "x86-64-v3"])
def test_every_number_of_rows(name, stored_as, target):
    """A model in 16 bits, and one in f32 whose weights are numbers of 16 bits."""
    half = HALVES[name]
    activations = half if stored_as == "half" else np.float32
    w = weights(half)
    inputs = {"x": (activations, ("rows", K))}
    proto = model([node("MatMul", ["x", "w"], ["y"])], inputs, {"w": w.astype(activations)})
    skip_if_not_here(target)
    exe = ingot.compile(proto, target)
    if target != "cpu":
        assert exe.memory["weights"] < 1.2 * w.nbytes, "the weights are stored in 16 bits"
    for rows in (1, 2, 7, 33):
        x = np.random.default_rng(rows).standard_normal((rows, K), np.float32).astype(activations)
        (got,) = exe.run(None, {"x": x})
        exact = x.astype(np.float64) @ w.astype(np.float64)
        bound = 1e-5 if stored_as == "f32" else {"f16": 2.0**-11, "bf16": 2.0**-8}[name]
        error = np.abs(got.astype(np.float64) - exact)
        assert got.dtype == activations
        assert (error <= bound * np.abs(exact) + 1e-4).all()


@pytest.mark.parametrize("name", HALVES)
def test_an_activation_is_converted_once(name):
    """Inside the loops of a GEMM no element of a tile is converted, alone or for each panel."""
    proto = model(
        [node("MatMul", ["x", "w"], ["y"])], {"x": (HALVES[name], (64, K))},
        {"w": weights(HALVES[name])},
    )  # fmt: skip
    session = pipeline.open_session("x86-64-v4")
    program = pipeline.run_stages(proto, session, stop_after="legalize")
    found = [e for _, kernel in program.kernels for e in visit.all_exprs(kernel.body)]
    assert any(isinstance(e, ir.Fma) for e in found)
    repeated = [e for e in found if isinstance(e, ir.Broadcast)]
    assert not [e for e in repeated if any(isinstance(x, ir.Cast) for x in visit.walk_exprs(e))]


@pytest.mark.parametrize("name", HALVES)
def test_a_vision_network_rounds_where_its_nodes_do(name):
    """Convolutions, a depthwise one, pooling and a classifier: within a rounding of the graph's
    interpreter, which rounds after every node."""
    rng, half = np.random.default_rng(0), HALVES[name]

    def numbers(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(half)

    nodes = [
        node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "w2"], ["c"], pads=[1, 1, 1, 1], group=24),
        node("Clip", ["c", "zero", "six"], ["d"]),
        node("Conv", ["d", "w3"], ["e"]),
        node("Add", ["e", "b"], ["f"]),
        node("GlobalAveragePool", ["f"], ["g"]),
        node("Flatten", ["g"], ["h"]),
        node("Gemm", ["h", "w4", "b4"], ["y"]),
    ]
    constants = {
        "w1": numbers(24, 3, 3, 3), "b1": numbers(24, 1)[:, 0], "w2": numbers(24, 1, 3, 3),
        "zero": np.zeros((), half), "six": np.array(6, half), "w3": numbers(24, 24, 1, 1),
        "w4": numbers(24, 10), "b4": numbers(10, 1)[:, 0],
    }  # fmt: skip
    inputs = {"x": (half, (1, 3, 20, 18))}
    feeds = {"x": rng.standard_normal((1, 3, 20, 18)).astype(half)}
    (want,) = Interpreted(model(nodes, inputs, constants)).run(None, feeds)
    (got,) = ingot.compile(model(nodes, inputs, constants)).run(None, feeds)
    scale = np.abs(want.astype(np.float32)).max()
    gap = np.abs(got.astype(np.float32) - want.astype(np.float32)).max()
    assert got.dtype == half
    assert gap <= 4 * scale * (2.0**-11 if name == "f16" else 2.0**-8)

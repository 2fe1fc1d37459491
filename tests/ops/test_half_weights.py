"""GEMMs of f16 and bf16, compiled: weights in 16 bits where rows are few, each activation converted
once, and every row count of a dynamic batch."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ingot
from ingot import backends, pipeline
from ingot.loops import ir, visit
from tests.ops.compiled_nodes import model, node

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

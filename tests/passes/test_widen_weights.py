"""widen_weights: contractions of narrow floats are computed in f32, and round as before."""

from __future__ import annotations

import numpy as np
import pytest

import ingot.ops  # noqa: F401  # fills the operator table
from ingot import dtypes
from ingot.graph import interp
from ingot.graph.builder import GraphBuilder
from ingot.graph.store import ConstantStore
from ingot.graph.types import tensor
from ingot.graph.verify import verify
from ingot.passes.widen_weights import widen_weights
from ingot.target import parse

TARGET = parse("x86-64-v3")


def network(dtype, constant: bool = True):
    store = ConstantStore()
    g = GraphBuilder("g", store)
    rng = np.random.default_rng(0)
    x = g.input("x", tensor(dtype, 2, 8, 9, 7))
    weights = rng.standard_normal((16, 8, 3, 3)).astype(dtype.numpy)
    w = g.constant(weights) if constant else g.input("w", tensor(dtype, 16, 8, 3, 3))
    bias = g.constant(rng.standard_normal(16).astype(dtype.numpy))
    y = g.add("relu", [g.add("conv", [x, w, bias], pads=(1, 1, 1, 1), strides=(2, 1))])
    flat = g.add("reshape", [y], shape=(2, 16 * 5 * 7))
    columns = g.constant(rng.standard_normal((16 * 5 * 7, 12)).astype(dtype.numpy))
    return g.finish([g.add("matmul", [flat, columns])]), store


@pytest.mark.parametrize("dtype", [dtypes.f16, dtypes.bf16])
def test_narrow_contractions_become_wide(dtype):
    before, store = network(dtype)
    after = widen_weights(before, store, TARGET)
    verify(after)
    found = {n.op: n.outputs[0].dtype for n in after.nodes if n.op in ("conv", "matmul")}
    assert found == {"conv": dtypes.f32, "matmul": dtypes.f32}
    assert after.outputs[0].dtype is dtype
    x = np.random.default_rng(1).standard_normal((2, 8, 9, 7)).astype(dtype.numpy)
    (want,), (got,) = interp.run(before, store, [x]), interp.run(after, store, [x])
    scale = np.abs(want.astype(np.float32)).max()
    gap = np.abs(got.astype(np.float32) - want.astype(np.float32)).max()
    assert gap <= 2 * scale * (2.0**-10 if dtype is dtypes.f16 else 2.0**-7), "one rounding"


def test_weights_that_are_inputs_stay_narrow():
    before, store = network(dtypes.f16, constant=False)
    after = widen_weights(before, store, TARGET)
    assert [n.outputs[0].dtype for n in after.nodes if n.op == "conv"] == [dtypes.f16]


def test_wide_contractions_stay():
    before, store = network(dtypes.f32)
    assert widen_weights(before, store, TARGET) == before

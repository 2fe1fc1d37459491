"""narrow_weights: f32 weights become bf16 or f16 where every one of them is such a number."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ingot.ops  # noqa: F401  # fills the operator table
from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph import interp
from ingot.graph.builder import GraphBuilder
from ingot.graph.store import ConstantStore
from ingot.graph.types import Symbol, tensor
from ingot.graph.verify import verify
from ingot.passes.narrow_weights import narrow_weights
from ingot.passes.widen_weights import widen_weights
from ingot.target import parse

TARGET = parse("x86-64-v4")
K, N = 512, 640


def dense(weights, rows=1, dtype=dtypes.f32):
    store = ConstantStore()
    g = GraphBuilder("g", store)
    if isinstance(rows, str):
        g.symbols[rows] = Symbol(rows, 1, None)
        rows = arith.Var(rows)
    x = g.input("x", tensor(dtype, rows, K))
    return g.finish([g.add("matmul", [x, g.constant(weights)])]), store


def stored(graph):
    """The element types of each matmul: activations, weights, result."""
    (node,) = (n for n in graph.nodes if n.op == "matmul")
    return tuple(v.dtype.name for v in (*node.inputs, *node.outputs))


def weights_in(numpy_type, seed=0):
    array = np.random.default_rng(seed).standard_normal((K, N), np.float32)
    return array.astype(numpy_type).astype(np.float32)


def narrowed(weights, rows=1):
    before, store = dense(weights, rows)
    after = narrow_weights(before, store, TARGET)
    verify(after)
    return before, after, store


@pytest.mark.parametrize(
    ("numpy_type", "expected"), [(ml_dtypes.bfloat16, "bf16"), (np.float16, "f16")]
)
def test_exact_weights_are_stored_in_16_bits(numpy_type, expected):
    weights = weights_in(numpy_type)
    weights[0, :4] = [np.inf, -0.0, np.nan, 2.0**-24]
    before, after, store = narrowed(weights)
    assert stored(after) == ("f32", expected, "f32")
    x = np.random.default_rng(1).standard_normal((1, K), np.float32)
    (want,), (got,) = interp.run(before, store, [x]), interp.run(after, store, [x])
    assert np.array_equal(want, got, equal_nan=True)


def test_one_other_weight_keeps_all_as_they_are():
    for at in (0, K * N - 1):  # in the sample, and behind it
        weights = weights_in(ml_dtypes.bfloat16)
        weights.ravel()[at] = np.float32(0.1)
        assert stored(narrowed(weights)[1]) == ("f32", "f32", "f32")


def test_many_rows_keep_wide_weights():
    weights = weights_in(ml_dtypes.bfloat16)
    assert stored(narrowed(weights, rows=512)[1]) == ("f32", "f32", "f32")
    assert stored(narrowed(weights, rows="rows")[1]) == ("f32", "bf16", "f32")


@pytest.mark.parametrize("dtype", [dtypes.f16, dtypes.bf16])
def test_narrow_models_keep_narrow_weights_where_they_are_read_once(dtype):
    weights = weights_in(dtype.numpy).astype(dtype.numpy)
    for rows, expected in ((1, dtype.name), (512, "f32")):
        graph, store = dense(weights, rows, dtype)
        after = widen_weights(graph, store, TARGET)
        verify(after)
        assert stored(after) == ("f32", expected, "f32")
        assert after.outputs[0].dtype is dtype

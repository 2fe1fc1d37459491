"""trim_taps: a convolution without the taps that only meet padding computes the same."""

from __future__ import annotations

import numpy as np
import pytest

import ingot.ops  # noqa: F401  # fills the operator table
from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph import interp
from ingot.graph.builder import GraphBuilder
from ingot.graph.store import ConstantStore
from ingot.graph.types import tensor
from ingot.passes.simplify_algebra import simplify_algebra


def conv_graph(space, taps, pads, strides, dilations, weights=None):
    store = ConstantStore()
    g = GraphBuilder("g", store)
    x = g.input("x", tensor(dtypes.f32, 2, 3, *space))
    if weights is None:
        weights = np.random.default_rng(0).standard_normal((4, 3, *taps)).astype(np.float32)
    attrs = {"pads": pads, "strides": strides, "dilations": dilations}
    y = g.add("conv", [x, g.constant(weights)], **attrs)
    return g.finish([y]), store


def filters(graph):
    return [tuple(n.inputs[1].shape[2:]) for n in graph.nodes if n.op == "conv"]


@pytest.mark.parametrize(
    "space, taps, pads, strides, dilations, left",
    [
        ((1, 1), (3, 3), (1, 1, 1, 1), (1, 1), (1, 1), (1, 1)),
        ((2, 2), (3, 3), (1, 1, 1, 1), (2, 2), (1, 1), (2, 2)),  # one output: taps 1 and 2
        ((2, 5), (3, 3), (1, 1, 1, 1), (1, 1), (1, 1), (3, 3)),  # all are useful
        ((1, 4), (5, 3), (2, 1, 2, 1), (1, 1), (1, 1), (1, 3)),
        ((3,), (7,), (4, 4), (1,), (1,), (7,)),
        ((1,), (4,), (3, 0), (1,), (1,), (1,)),
        ((2,), (3,), (4, 4), (1,), (2,), (3,)),
        ((1,), (3,), (2, 2), (1,), (2,), (1,)),  # dilated: whole steps of the padding are cut
    ],
)  # fmt: skip
def test_useless_taps_are_cut(space, taps, pads, strides, dilations, left):
    before, store = conv_graph(space, taps, pads, strides, dilations)
    after = simplify_algebra(before, store)
    assert filters(after) == [left]
    x = np.random.default_rng(1).standard_normal((2, 3, *space)).astype(np.float32)
    (want,), (got,) = interp.run(before, store, [x]), interp.run(after, store, [x])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_infinite_taps_stay():
    """0 · inf is NaN, in the padding too."""
    weights = np.ones((4, 3, 3, 3), np.float32)
    weights[0, 0, 0, 0] = np.inf
    before, store = conv_graph((1, 1), (3, 3), (1, 1, 1, 1), (1, 1), (1, 1), weights)
    assert filters(simplify_algebra(before, store)) == [(3, 3)]


def test_dynamic_maps_stay():
    store = ConstantStore()
    g = GraphBuilder("g", store)
    g.symbol("n", low=1, source="input")
    x = g.input("x", tensor(dtypes.f32, 1, 3, arith.Var("n"), 1))
    weights = np.ones((4, 3, 3, 3), np.float32)
    y = g.add("conv", [x, g.constant(weights)], pads=(1, 1, 1, 1))
    assert filters(simplify_algebra(g.finish([y]), store)) == [(3, 3)]


def depthwise_graph(height, weights, pads=(1, 1, 1, 1)):
    store = ConstantStore()
    g = GraphBuilder("g", store)
    g.symbol("n", low=1, source="input")
    x = g.input("x", tensor(dtypes.f32, 1, 4, height, 6))
    y = g.add("conv", [x, g.constant(weights)], pads=pads, group=4)
    return g.finish([y]), store


def is_clipped(graph):
    return [n.attr("clip_rows", False) for n in graph.nodes if n.op == "conv"]


def test_rows_of_dynamic_maps_are_clipped():
    finite = np.ones((4, 1, 3, 3), np.float32)
    infinite = np.full((4, 1, 3, 3), np.inf, np.float32)
    n = arith.Var("n")
    for height, weights, pads, want in [
        (n, finite, (1, 1, 1, 1), True),
        (n, finite, (0, 1, 0, 1), False),
        (n, infinite, (1, 1, 1, 1), False),
        (5, finite, (1, 1, 1, 1), False),
    ]:
        graph, store = depthwise_graph(height, weights, pads)
        assert is_clipped(simplify_algebra(graph, store)) == [want]

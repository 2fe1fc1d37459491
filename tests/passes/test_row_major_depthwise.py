"""Which depthwise convolutions stay row-major: by their neighbours and by cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from ingot import dtypes
from ingot.graph.builder import GraphBuilder
from ingot.graph.interp import run as interpret
from ingot.graph.ir import Graph, Value
from ingot.graph.store import ConstantStore
from ingot.graph.types import tensor
from ingot.graph.verify import verify
from ingot.passes.choose_layouts import choose_layouts
from ingot.target import Target, parse

V3, V4 = parse("x86-64-v3"), parse("x86-64-v4")
CHANNELS = 32
RNG = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def depthwise(g: GraphBuilder, x: Value, taps: int = 3, stride: int = 1) -> Value:
    weights, room = g.constant(numbers(CHANNELS, 1, taps, taps)), taps // 2
    return g.add(
        "conv", [x, weights], group=CHANNELS, pads=(room,) * 4, strides=(stride, stride)
    )  # fmt: skip


def pointwise(g: GraphBuilder, x: Value) -> Value:
    return g.add("conv", [x, g.constant(numbers(CHANNELS, CHANNELS, 1, 1))])


def made(
    build: Callable[[GraphBuilder, Value], Value], target: Target = V3, size: int = 14
) -> tuple[Graph, Graph, ConstantStore]:
    g = GraphBuilder("maps", store := ConstantStore())
    x = g.input("x", tensor(dtypes.f32, 1, CHANNELS, size, size))
    graph = g.finish([build(g, x)])
    return graph, choose_layouts(graph, store, target), store


def is_row_major(graph: Graph) -> list[bool]:
    """Of each depthwise convolution."""
    convs = [n for n in graph.nodes if n.op == "conv" and n.attr("group", 1) > 1]
    return [n.outputs[0].tensor.layout is None for n in convs]


def residual(g: GraphBuilder, x: Value) -> Value:
    return g.add("add", [g.add("relu", [depthwise(g, x)]), x])


def chain(g: GraphBuilder, x: Value) -> Value:
    return depthwise(g, g.add("relu", [depthwise(g, x)]))


def flattened(g: GraphBuilder, x: Value) -> Value:
    size = CHANNELS * 14 * 14
    flat = g.add("reshape", [depthwise(g, x)], shape=(1, size))
    return g.add("matmul", [flat, g.constant(numbers(size, 4))])


def separable(g: GraphBuilder, x: Value) -> Value:
    return pointwise(g, depthwise(g, x))


def after_pointwise(g: GraphBuilder, x: Value) -> Value:
    return depthwise(g, pointwise(g, x))


def two_readers(g: GraphBuilder, x: Value) -> Value:
    y = depthwise(g, x)
    return g.add("add", [g.add("relu", [y]), pointwise(g, y)])


def between_transposes(g: GraphBuilder, x: Value) -> Value:
    """As exporters of channels-last models write it: both transposes are views."""
    last = g.add("transpose", [x], perm=(0, 3, 1, 2))
    weights = g.constant(numbers(14, 1, 3, 3))
    y = g.add("conv", [last, weights], group=14, pads=(1,) * 4)
    return g.add("transpose", [y], perm=(0, 2, 3, 1))


@pytest.mark.parametrize("target", [V3, V4], ids=lambda t: t.name)
@pytest.mark.parametrize("build", [depthwise, residual, chain, flattened])
def test_between_row_major_values_it_stays_row_major(build, target):
    graph, after, store = made(build, target)
    verify(after)
    assert all(is_row_major(after)) and is_row_major(after)
    weights = [n.inputs[1] for n in after.nodes if n.op == "conv"]
    assert all(w is not None and w.tensor.layout is None for w in weights)
    assert not [n for n in after.nodes if n.op == "relayout" and n.inputs[0] in graph.inputs]
    x = numbers(1, CHANNELS, 14, 14)
    for a, b in zip(interpret(graph, store, [x]), interpret(after, store, [x]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("build", [separable, after_pointwise, two_readers, between_transposes])
def test_with_a_channels_last_neighbour_it_is_channels_last(build):
    _, after, _ = made(build)
    assert is_row_major(after) == [False]


def test_wide_windows_over_narrow_maps_are_channels_last_where_lanes_would_be_idle():
    """A row of 7 pixels fills 7 of 8 lanes, or of 16; the relayouts cost as much on both."""

    def wide(g: GraphBuilder, x: Value) -> Value:
        return depthwise(g, x, taps=7)

    assert is_row_major(made(wide, V3, size=7)[1]) == [True]
    assert is_row_major(made(wide, V4, size=7)[1]) == [False]
    assert is_row_major(made(wide, V4, size=14)[1]) == [True]


def test_slow_relayouts_are_avoided_and_fast_ones_are_not():
    """The decision follows the machine's bandwidth, not a list of shapes."""

    def wide(g: GraphBuilder, x: Value) -> Value:
        return depthwise(g, x, taps=7)

    machine = V3.machine
    fast = replace(V3, machine=replace(machine, cache_bytes_per_cycle=(64, 64, 1024)))
    assert is_row_major(made(wide, V3, size=7)[1]) == [True]
    assert is_row_major(made(wide, fast, size=7)[1]) == [False]


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_lanes_are_at_most_two_columns_apart(stride):
    def strided(g: GraphBuilder, x: Value) -> Value:
        return depthwise(g, x, stride=stride)

    assert is_row_major(made(strided, size=40)[1]) == [stride <= 2]

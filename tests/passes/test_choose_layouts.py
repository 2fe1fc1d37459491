"""choose_layouts: the layout of each value, and equal outputs."""

from __future__ import annotations

import numpy as np
import pytest

from ingot import api, dtypes, pipeline
from ingot.graph.builder import GraphBuilder
from ingot.graph.interp import run as interpret
from ingot.graph.ir import Graph
from ingot.graph.layouts import channels_last
from ingot.graph.store import ConstantStore
from ingot.graph.types import TensorType, tensor
from ingot.graph.verify import verify
from ingot.ops.views import is_view
from ingot.passes.choose_layouts import choose_layouts
from ingot.runtime.executable import Executable
from ingot.support import options
from ingot.target import Target, parse

V3, V4 = parse("x86-64-v3"), parse("x86-64-v4")
RNG = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def matmul_graph(columns: int, rows: int = 64) -> tuple[Graph, ConstantStore]:
    g = GraphBuilder("matmul", store := ConstantStore())
    x = g.input("x", tensor(dtypes.f32, rows, 20))
    return g.finish([g.add("matmul", [x, g.constant(numbers(20, columns))])]), store


def residual(channels: int = 24) -> tuple[Graph, ConstantStore]:
    """Two convolutions, a residual sum, a pool, a concat and a row of numbers at the end."""
    g = GraphBuilder("residual", store := ConstantStore())
    x = g.input("x", tensor(dtypes.f32, 2, 3, 11, 9))
    first = g.add("conv", [x, g.constant(numbers(channels, 3, 3, 3))], pads=(1,) * 4)
    weights = g.constant(numbers(channels, channels, 1, 1))
    total = g.add("add", [g.add("relu", [g.add("conv", [first, weights])]), first])
    both = g.add("concat", [total, first], axis=1)
    small = g.add("max_pool", [both], kernel=(2, 2), strides=(2, 2))
    flat = g.add("reshape", [small], shape=(2, 2 * channels * 5 * 4))
    return g.finish([flat, small, g.add("reduce_mean", [total], axes=(2, 3), keepdims=True)]), store


def layout_of(graph: Graph, op: str):
    nodes = [n for n in graph.nodes if n.op == op]
    assert nodes, f"no {op}"
    return [n.outputs[0].tensor.layout for n in nodes]


@pytest.mark.parametrize("target", [V3, V4], ids=lambda t: t.name)
def test_panels_follow_the_targets_registers(target: Target):
    made = choose_layouts(*matmul_graph(100), target)
    (layout,) = layout_of(made, "relayout")
    assert layout is not None and layout.axes[:2] == ((1, 0), (0, 0))
    assert layout.axes[2][1] % target.lanes(dtypes.f32) == 0


def test_few_columns_stay_as_they_are():
    assert not [n for n in choose_layouts(*matmul_graph(3), V3).nodes if n.op == "relayout"]


@pytest.mark.parametrize(("per_group", "width"), [(4, 4), (8, 8), (32, 16), (12, 12), (11, None)])
def test_panels_divide_the_outputs_of_a_group(per_group: int, width: int | None):
    g = GraphBuilder("groups", store := ConstantStore())
    x = g.input("x", tensor(dtypes.f32, 1, 12, 30, 30))
    w = g.constant(numbers(4 * per_group, 3, 3, 3))
    made = choose_layouts(g.finish([g.add("conv", [x, w], group=4)]), store, V3)
    layouts = [
        n.outputs[0].tensor.layout for n in made.nodes if n.op == "relayout" and n.inputs[0] == w
    ]
    want = [] if width is None else [((0, 0), (2, 0), (3, 0), (1, 0), (0, width))]
    assert [layout and layout.axes for layout in layouts] == want


@pytest.mark.parametrize(
    ("channels", "outputs", "pads", "count"),
    [
        (32, 8, 1, 1),
        (32, 8, 0, 0),  # used for few outputs, and not copied otherwise
        (32, 128, 0, 1),
        (3, 128, 1, 0),  # rows of channels shorter than a vector
        (4096, 8, 1, 1),
        (4096, 128, 0, 1),
    ],
)
def test_an_input_is_converted_once_for_all_convolutions(channels, outputs, pads, count):
    g = GraphBuilder("two", store := ConstantStore())
    x = g.input("x", tensor(dtypes.f32, 1, channels, 20, 20))
    made = [
        g.add("conv", [x, g.constant(numbers(outputs, channels, 3, 3))], pads=(pads,) * 4)
        for _ in range(2)
    ]
    with_layouts = choose_layouts(g.finish([g.add("add", made)]), store, V3)
    verify(with_layouts)
    relayouts = [n for n in with_layouts.nodes if n.op == "relayout" and n.inputs[0] == x]
    assert len(relayouts) == count
    assert all(n.outputs[0].tensor.layout == channels_last(4) for n in relayouts)


def test_channels_are_last_from_the_first_convolution_to_the_reshape():
    made = choose_layouts(*residual(), V3)
    verify(made)
    last = channels_last(4)
    for op in ("conv", "add", "relu", "concat", "max_pool", "reduce_mean"):
        assert layout_of(made, op) == [last] * len(layout_of(made, op)), op
    assert layout_of(made, "reshape") == [None]
    outputs = [v.type for v in made.outputs]
    assert all(isinstance(t, TensorType) and t.layout is None for t in outputs)
    assert [v.name for v in made.outputs] == [v.name for v in residual()[0].outputs]


@pytest.mark.parametrize("channels", [24, 13])
@pytest.mark.parametrize("layouts", [True, False])
def test_outputs_are_equal(channels: int, layouts: bool):
    graph, store = residual(channels)
    x = numbers(2, 3, 11, 9)
    want = interpret(graph, store, [x])
    with_layouts = choose_layouts(graph, store, V3)
    for a, b in zip(interpret(with_layouts, store, [x]), want):
        np.testing.assert_array_equal(a, b)
    with options.override(off=() if layouts else {"layouts"}):
        session = api.make_session("cpu", {}, jobs=1)
        session.store = store
        package = pipeline.run_stages(graph, session)
    got = Executable(package).run(None, {"x": x})
    for a, b in zip(got, want):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def block(channels: int = 16) -> tuple[Graph, ConstantStore]:
    """As in ConvNeXt: a convolution, a norm and a matmul over the last axis of channels, a sum."""
    g = GraphBuilder("block", store := ConstantStore())
    x = g.input("x", tensor(dtypes.f32, 1, 4, 9, 7))
    first = g.add("conv", [x, g.constant(numbers(channels, 4, 1, 1))])
    taps = g.constant(numbers(channels, 1, 3, 3))
    deep = g.add("conv", [first, taps], pads=(1,) * 4, group=channels)
    last = g.add("transpose", [deep], perm=(0, 2, 3, 1))
    mixed = g.add("matmul", [last, g.constant(numbers(channels, channels))])
    back = g.add("transpose", [mixed], perm=(0, 3, 1, 2))
    total = g.add("add", [first, back])
    return g.finish([g.add("conv", [total, g.constant(numbers(5, channels, 2, 2))])]), store


def test_transposes_between_two_layouts_are_views():
    graph, store = block()
    made = choose_layouts(graph, store, V3)
    verify(made)
    assert layout_of(made, "transpose") == [None, channels_last(4)]
    assert all(is_view(n) for n in made.nodes if n.op == "transpose")
    plain = [n for n in graph.nodes if n.op == "transpose"]
    assert not any(is_view(n) for n in plain)
    x = numbers(1, 4, 9, 7)
    (want,) = interpret(graph, store, [x])
    session = api.make_session("cpu", {}, jobs=1)
    session.store = store
    (got,) = Executable(pipeline.run_stages(graph, session)).run(None, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_a_transpose_without_a_preferred_layout_is_a_copy():
    g = GraphBuilder("k", store := ConstantStore())
    x = g.input("x", tensor(dtypes.f32, 2, 5, 6, 3))
    y = g.add("softmax", [g.add("transpose", [x], perm=(0, 3, 1, 2))], axis=-1)
    made = choose_layouts(g.finish([y]), store, V3)
    assert layout_of(made, "transpose") == [None]


def compiled(graph: Graph, store: ConstantStore, x: np.ndarray) -> list[np.ndarray]:
    session = api.make_session("cpu", {}, jobs=1)
    session.store = store
    return Executable(pipeline.run_stages(graph, session)).run(None, {"x": x})


def test_nodes_with_data_dependent_sizes_read_the_default_layout():
    g = GraphBuilder("k", store := ConstantStore())
    x = g.input("x", tensor(dtypes.f32, 1, 2, 4, 5))
    y = g.add("relu", [g.add("conv", [x, g.constant(numbers(3, 2, 1, 1))])])
    places = g.add("nonzero", [g.add("gt", [y, g.constant(np.float32(0.5).reshape(()))])],
                   symbols=(g.symbol("found"),))  # fmt: skip
    graph, given = g.finish([places]), numbers(1, 2, 4, 5)
    np.testing.assert_array_equal(
        compiled(graph, store, given)[0], interpret(graph, store, [given])[0]
    )


def test_sub_graphs_read_the_default_layout():
    g = GraphBuilder("k", store := ConstantStore())
    x = g.input("x", tensor(dtypes.f32, 1, 2, 4, 5))
    y = g.add("conv", [x, g.constant(numbers(3, 2, 1, 1))])
    flag = g.add("gt", [g.add("reduce_sum", [y], axes=(0, 1, 2, 3), keepdims=False),
                        g.constant(np.float32(0).reshape(()))])  # fmt: skip
    branches = []
    for op in ("neg", "relu"):
        inner = GraphBuilder(op, store)
        inside = inner.input("y", tensor(dtypes.f32, 1, 3, 4, 5))
        branches.append(inner.finish([inner.add(op, [inside])]))
    out = g.add("if", [flag, y], then_branch=branches[0], else_branch=branches[1])
    graph = g.finish([out])
    for given in (numbers(1, 2, 4, 5), -numbers(1, 2, 4, 5)):
        np.testing.assert_allclose(
            compiled(graph, store, given)[0], interpret(graph, store, [given])[0], atol=1e-5
        )


@pytest.mark.parametrize(
    ("channels", "size", "kernel", "strides", "pads"),
    [
        (32, (20, 19), 3, (1, 1), (1, 1, 1, 1)),
        (8, (9, 30), 5, (2, 2), (2, 1, 2, 2)),
        (40, (7, 7), 3, (2, 1), (0, 1, 1, 1)),
        (12, (8, 8), 3, (1, 1), (1, 1, 1, 1)),  # no whole vectors
        (16, (1, 9), 3, (1, 1), (1, 1, 1, 1)),  # one row
    ],
)
def test_depthwise_convolutions(channels, size, kernel, strides, pads):
    """A depthwise convolution and a pool, channels last, borders and strides of all kinds."""
    g = GraphBuilder("k", store := ConstantStore())
    x = g.input("x", tensor(dtypes.f32, 2, 3, *size))
    wide = g.add("conv", [x, g.constant(numbers(channels, 3, 1, 1))])
    taps, bias = g.constant(numbers(channels, 1, kernel, kernel)), g.constant(numbers(channels))
    deep = g.add("conv", [wide, taps, bias], strides=strides, pads=pads, group=channels)
    pool = g.add("avg_pool", [g.add("relu", [deep])], kernel=(3, 3), strides=(1, 1), pads=(1,) * 4)
    graph, given = g.finish([pool, deep]), numbers(2, 3, *size)
    for got, want in zip(compiled(graph, store, given), interpret(graph, store, [given])):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)

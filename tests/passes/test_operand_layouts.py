"""Reshapes and row reductions of channels-last values: which relayouts run, and equal outputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot import dtypes
from ingot.graph.builder import GraphBuilder
from ingot.graph.interp import run as interpret
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.layouts import axis_order, channels_last, permutation_layout
from ingot.graph.store import ConstantStore
from ingot.graph.types import Layout, tensor
from ingot.graph.verify import verify
from ingot.ops.views import is_view, reshape_as_view
from ingot.passes.choose_layouts import choose_layouts
from ingot.passes.edit import constant_ref
from ingot.target import parse
from tests.passes.test_choose_layouts import compiled, layout_of, numbers

V3 = parse("x86-64-v3")


class Made:
    """A graph that begins with a convolution of 16 outputs over (1, 4, 6, 10)."""

    def __init__(self) -> None:
        self.g = GraphBuilder("made", ConstantStore())
        self.x = self.g.input("x", tensor(dtypes.f32, 1, 4, 6, 10))
        self.y = self.conv(self.x, 16)

    def conv(self, x: Value, outputs: int) -> Value:
        weights = numbers(outputs, x.tensor.shape[1].value, *[1] * (x.tensor.rank - 2))
        return self.g.add("conv", [x, self.g.constant(weights)])

    def finish(self, *outputs: Value) -> tuple[Graph, Graph]:
        """The graph before and after choose_layouts; the outputs are equal, compiled too."""
        graph, store = self.g.finish(list(outputs)), self.g.store
        with_layouts = choose_layouts(graph, store, V3)
        verify(with_layouts)
        x = numbers(1, 4, 6, 10)
        want = interpret(graph, store, [x])
        for outputs in (interpret(with_layouts, store, [x]), compiled(graph, store, x)):
            for a, b in zip(outputs, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
        return graph, with_layouts


def copies(graph: Graph) -> list[Node]:
    """The nodes that copy elements into another order at run time."""
    made = {v.name for n in graph.nodes if constant_ref(n) is not None for v in n.outputs}
    moving = [n for n in graph.nodes if n.op in ("relayout", "reshape", "transpose")]
    return [n for n in moving if not is_view(n) and n.inputs[0] and n.inputs[0].name not in made]


def test_flattened_feature_maps_are_views_both_ways():
    made = Made()
    tokens = made.g.add("reshape", [made.y], shape=(1, 16, 60))
    rows = made.g.add("transpose", [tokens], perm=(0, 2, 1))
    mixed = made.g.add("matmul", [rows, made.g.constant(numbers(16, 24))])
    transposed = made.g.add("transpose", [mixed], perm=(0, 2, 1))
    back = made.g.add("reshape", [transposed], shape=(1, 24, 6, 10))
    end = made.conv(made.g.add("relu", [back]), 8)
    _, with_layouts = made.finish(made.g.add("reduce_mean", [end], axes=(2, 3), keepdims=True))
    assert [n.op for n in copies(with_layouts)] == ["relayout"]  # of the result alone
    assert layout_of(with_layouts, "reshape") == [channels_last(3), channels_last(4)]


def test_a_channel_shuffle_copies_once():
    made = Made()
    split = made.g.add("reshape", [made.y], shape=(1, 2, 8, 6, 10))
    transposed = made.g.add("transpose", [split], perm=(0, 2, 1, 3, 4))
    end = made.conv(made.g.add("reshape", [transposed], shape=(1, 16, 6, 10)), 8)
    _, with_layouts = made.finish(made.g.add("reduce_mean", [end], axes=(2, 3), keepdims=True))
    assert [n.op for n in copies(with_layouts)][:-1] == ["transpose"]


def test_mixed_axes_are_converted_before_the_reshape():
    """As in a group norm: the reshape mixes channels and space."""
    made = Made()
    rows = made.g.add("reshape", [made.y], shape=(1, 4, 240))
    norm = made.g.add("layer_norm", [rows], axis=2, epsilon=1e-5)
    back = made.g.add("reshape", [norm], shape=(1, 16, 6, 10))
    _, with_layouts = made.finish(back)
    assert [n.op for n in copies(with_layouts)] == ["relayout"]


@pytest.mark.parametrize(("axis", "count"), [(2, 1), (1, 0)])
def test_row_reductions_read_contiguous_memory(axis, count):
    made = Made()
    tokens = made.g.add("reshape", [made.y], shape=(1, 16, 60))
    _, with_layouts = made.finish(made.g.add("softmax", [tokens], axis=axis))
    assert len(copies(with_layouts)) == count


def test_a_value_is_converted_once_for_all_its_readers():
    made = Made()
    flat = [made.g.add("reshape", [made.y], shape=shape) for shape in ((1, 960), (4, 240))]
    _, with_layouts = made.finish(*flat)
    assert [n.op for n in copies(with_layouts)] == ["relayout"]


def test_operands_of_one_shape_get_one_layout():
    made = Made()
    rows = made.g.add("softmax", [made.g.add("reshape", [made.y], shape=(1, 960))], axis=1)
    other = made.g.add("reshape", [rows], shape=(1, 16, 6, 10))
    per_channel = made.g.constant(numbers(1, 16, 1, 1))
    total = made.g.add("mul", [made.g.add("add", [made.y, other]), per_channel])
    _, with_layouts = made.finish(made.conv(total, 8))
    (add,) = (n for n in with_layouts.nodes if n.op == "add")
    assert [v and v.tensor.layout for v in add.inputs] == [channels_last(4)] * 2
    (mul,) = (n for n in with_layouts.nodes if n.op == "mul")
    assert [v and v.tensor.layout for v in mul.inputs] == [channels_last(4), None]


SIZES = st.lists(st.sampled_from([1, 2, 3, 4]), min_size=0, max_size=5)


@given(SIZES, st.data())
def test_a_reshape_view_keeps_the_bytes(sizes: list[int], data: st.DataObject):
    shape = tuple(data.draw(st.permutations(sizes)))
    if data.draw(st.booleans()) and len(shape) > 1:
        shape = (shape[0] * shape[1], *shape[2:])
    before = data.draw(st.permutations(range(len(sizes))))
    x = replace(tensor(dtypes.f32, *sizes), layout=permutation_layout(before))
    out = reshape_as_view(x, tensor(dtypes.f32, *shape))
    if out is None:
        return
    values, after = np.arange(np.prod(sizes, dtype=int)).reshape(sizes), axis_order(out)
    in_memory = (
        values.transpose(before).reshape(-1),
        values.reshape(shape).transpose(after).reshape(-1),
    )
    np.testing.assert_array_equal(*in_memory)


@pytest.mark.parametrize(
    ("before", "shape", "after"),
    [
        (None, (1, 16, 60), None),
        (channels_last(4), (1, 16, 60, 1), channels_last(4)),
        (channels_last(4), (1, 1, 16, 60), Layout(((0, 0), (1, 0), (3, 0), (2, 0)))),
        (channels_last(4), (16, 60), Layout(((1, 0), (0, 0)))),
    ],
)
def test_axes_of_size_one_follow_a_usual_layout(before, shape, after):
    x = replace(tensor(dtypes.f32, 1, 16, 6, 10), layout=before)
    out = reshape_as_view(x, tensor(dtypes.f32, *shape))
    assert out is not None and out.layout == after

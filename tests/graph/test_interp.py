"""The graph interpreter: outputs, symbols bound by inputs or data, errors that name both sides."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.graph.interp import run, run_all
from ingot.graph.store import ConstantStore
from tests.graph.graphs import graph
from tests.refusal import refused

LINEAR = """
graph g(%x: f32[n, 2], %y: f32[n, 3]) {
  symbol n: 1..4
  %w: f32[2, 3] = @w
  %p: f32[n, 3] = matmul(%x, %w)
  %s: f32[n, 3] = add(%p, %y)
  %size: i64[2] = index_tensor() {shape=[2], values=[n, n * 3]}
  return %s, %size
}
"""


def linear(x, y):
    store = ConstantStore()
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    g = graph(LINEAR, store, w=w)
    return run(g, store, [x, y]), x @ w + y


def test_outputs_and_symbolic_attributes():
    (s, size), wanted = linear(np.ones((4, 2), np.float32), np.ones((4, 3), np.float32))
    np.testing.assert_array_equal(s, wanted)
    np.testing.assert_array_equal(size, [4, 12])


def test_run_all_gives_every_value():
    store = ConstantStore()
    g = graph(LINEAR, store, w=np.ones((2, 3), np.float32))
    values = run_all(g, store, [np.ones((1, 2), np.float32), np.zeros((1, 3), np.float32)])
    assert set(values) == {"x", "y", "w", "p", "s", "size"}
    np.testing.assert_array_equal(values["p"], [[2, 2, 2]])


@pytest.mark.parametrize(
    "x, y, facts, where",
    [
        ((2, 2), (3, 3), ["'n'", "axis 0", "'x'", 2, "'y'", 3], ()),
        ((5, 2), (5, 3), ["'n'", 5, "1..4"], ("axis 0", "'x'")),
        ((2, 9), (2, 3), ["(2, 9)", "f32[n, 2]", "n=2"], "'x'"),
        ((2,), (2, 3), ["(2,)", "f32[n, 2]"], "'x'"),
    ],
)
def test_wrong_shapes_name_both_sides(x, y, facts, where):
    with refused("bad-input", *facts, where=where, hint=False):
        linear(np.ones(x, np.float32), np.ones(y, np.float32))


def test_wrong_dtype_and_count():
    with refused("bad-input", "f64", "f32[n, 2]", where="'x'", hint=False):
        linear(np.ones((2, 2)), np.ones((2, 3), np.float32))
    store = ConstantStore()
    g = graph(LINEAR, store, w=np.ones((2, 3), np.float32))
    with refused("bad-input", 2, 1, where="g", hint=False):
        run(g, store, [np.ones((2, 2), np.float32)])


HITS = """
graph g(%x: f32[n], %sizes: i64[2]) {
  symbol n: 0..
  symbol k: 0.. from node
  symbol a: 1..3 from node
  symbol b: 0.. from node
  %hits: i64[1, k] = nonzero(%x) {symbols=["k"]}
  %flat: i64[k] = reshape(%hits) {shape=[k]}
  %some: f32[k] = gather(%x, %flat) {axis=0}
  %bound: i64[2] = bind(%sizes) {symbols=["a", "b"]}
  %grid: f32[a, b + k] = fill(%zero) {shape=[a, b + k]}
  return %some, %grid
}
""".replace("  %grid", "  %zero: f32[] = @zero\n  %grid")


def hits(x, sizes):
    store = ConstantStore()
    g = graph(HITS, store, zero=np.float32(7))
    return run(g, store, [np.array(x, np.float32), np.array(sizes)])


def test_sizes_that_the_data_gives():
    some, grid = hits([0, 5, 0, 6], [3, 4])
    np.testing.assert_array_equal(some, [5, 6])
    assert grid.shape == (3, 6) and (grid == 7).all()
    some, grid = hits([0], [1, 0])
    assert some.shape == (0,) and grid.shape == (1, 0)


def test_a_size_out_of_its_declared_range_is_a_run_time_error():
    with refused("run-failed", "'a'", 4, "1..3", where="bound", hint=False):
        hits([1], [4, 0])


def test_a_failing_operator_is_named():
    store = ConstantStore()
    g = graph(
        """
graph g(%x: f32[3], %i: i64[1]) {
  %y: f32[1] = gather(%x, %i) {axis=0}  # embed
  return %y
}""",
        store,
    )
    with refused("run-failed", where="embed", hint=False):
        run(g, store, [np.ones(3, np.float32), np.array([3])])


CONTROL = """
graph g(%c: bool[], %x: f32[n]) {
  symbol n: 1..
  symbol m: 0.. from node
  %trips: i64[] = @trips
  %y: f32[n], %all: f32[m, n] = loop(%trips, %c, %x, %x) {body=graph body(
      %i: i64[], %go: bool[], %acc: f32[n], %step: f32[n]) {
    %next: f32[n] = add(%acc, %step)
    return %go, %next, %next
  }, carried=1, symbols=["m"]}
  %z: f32[n] = if(%c, %y) {else_branch=graph e(%a: f32[n]) {
    return %a
  }, then_branch=graph t(%a: f32[n]) {
    %b: f32[n] = neg(%a)
    return %b
  }}
  return %z, %all
}
"""


def test_sub_graphs_run_with_the_symbols_around_them():
    store = ConstantStore()
    g = graph(CONTROL, store, trips=np.int64(3))
    x = np.array([1, 2], np.float32)
    z, rows = run(g, store, [np.array(True), x])
    np.testing.assert_array_equal(z, -4 * x)
    np.testing.assert_array_equal(rows, [2 * x, 3 * x, 4 * x])
    z, rows = run(g, store, [np.array(False), x])
    np.testing.assert_array_equal(z, x)
    assert rows.shape == (0, 2)

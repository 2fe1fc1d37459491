"""decompose: composite operators become primitive ones unless the target keeps them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ingot.graph import opdef
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Value
from ingot.graph.opdef import Attrs, OpDef
from ingot.graph.store import ConstantStore
from ingot.graph.text import show
from ingot.graph.types import TensorType, Type
from ingot.passes.decompose import decompose
from tests.graph.graphs import agree, graph
from tests.refusal import refused

SOFTMAX = """
graph g(%x: f32[n, 6]) {
  symbol n: 1..
  %y: f32[n, 6] = softmax(%x) {axis=1}  # attention
  return %y
}"""


def test_a_composite_operator_decomposes_unless_it_is_kept():
    store = ConstantStore()
    g = graph(SOFTMAX, store)
    assert decompose(g, store, frozenset({"softmax"})) == g
    after = decompose(g, store)
    agree(g, after, store, rtol=1e-5)
    assert "softmax" not in show(after)
    assert {node.origin for node in after.nodes} == {"attention"}
    assert decompose(after, store) == after


def test_an_operator_without_loops_always_decomposes():
    store = ConstantStore()
    stats = {name: np.full(3, 2, np.float32) for name in "stmv"}
    g = graph(
        """
graph g(%x: f32[2, 3, 4]) {
  %s: f32[3] = @s
  %t: f32[3] = @t
  %m: f32[3] = @m
  %v: f32[3] = @v
  %y: f32[2, 3, 4] = batch_norm(%x, %s, %t, %m, %v) {epsilon=1e-05}
  %z: f32[2, 3, 4] = neg(%y)
  return %z, %y
}""",
        store,
        **stats,
    )
    after = decompose(g, store, frozenset({"batch_norm"}))
    agree(g, after, store, rtol=1e-5)
    assert "batch_norm" not in show(after)


def test_sub_graphs_decompose():
    store = ConstantStore()
    g = graph(
        """
graph g(%c: bool[], %x: f32[6]) {
  %y: f32[6] = if(%c, %x) {else_branch=graph e(%a: f32[6]) {
    %b: f32[6] = softmax(%a) {axis=0}
    return %b
  }, then_branch=graph t(%a: f32[6]) {
    return %a
  }}
  return %y
}""",
        store,
    )
    after = decompose(g, store)
    agree(g, after, store, rtol=1e-5)
    assert "softmax" not in show(after)


class Shell(OpDef):
    """A test operator that decomposes into another."""

    inner = "t_shell_2"

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        assert isinstance(inputs[0], TensorType)
        return [inputs[0]]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        return [-np.asarray(inputs[0])]

    def decompose(
        self,
        g: GraphBuilder,
        inputs: Sequence[Value | None],
        outputs: Sequence[TensorType],
        attrs: Attrs,
    ) -> list[Value]:
        return [g.add(self.inner, inputs)]


@pytest.fixture
def shells(monkeypatch):
    outer, inner = Shell(), Shell()
    outer.name, inner.name, inner.inner = "t_shell_1", "t_shell_2", "neg"
    monkeypatch.setitem(opdef.TABLE, "t_shell_1", outer)
    monkeypatch.setitem(opdef.TABLE, "t_shell_2", inner)
    return outer, inner


SHELL = """
graph g(%x: f32[2]) {
  %y: f32[2] = t_shell_1(%x)  # deep
  return %y
}"""


def test_decompositions_are_decomposed(shells):
    store = ConstantStore()
    g = graph(SHELL, store)
    after = decompose(g, store)
    agree(g, after, store)
    assert [(n.op, n.origin) for n in after.nodes] == [("neg", "deep")]


def test_going_round_in_circles_is_an_error(shells):
    shells[1].inner = "t_shell_1"
    store = ConstantStore()
    with refused("bad-graph", "t_shell_1", "t_shell_2", where="deep", hint=False):
        decompose(graph(SHELL, store), store)

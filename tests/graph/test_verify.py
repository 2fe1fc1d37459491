"""The verifier: a sound graph passes, and each invariant has a graph that violates it."""

from __future__ import annotations

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph import verify as verifier
from ingot.graph.ir import Graph, Node, Value, make_attrs, replace
from ingot.graph.text import parse
from ingot.graph.types import Symbol, TensorType, tensor
from ingot.graph.verify import sizes_agree, types_agree, verify
from tests.graph.graphs import graph
from tests.refusal import Fact, Facts, refused

GOOD = """
graph g(%x: f32[n, 4], %past: f32[4]) {
  symbol n: 1..
  symbol k: 0.. from node
  %w: f32[4] = @w
  %y: f32[n, 4] = add(%x, %w)
  %hits: i64[2, k] = nonzero(%y) {symbols=["k"]}
  %rows: f32[k * 2] = reshape(%hits_f) {shape=[k * 2]}
  %next: f32[4] = neg(%past)
  state %past -> %next
  return %y, %rows, %next
}
""".replace(
    "%rows: f32[k * 2] = reshape(%hits_f)",
    """%hits_f: f32[2, k] = cast(%hits) {to=f32}
  %rows: f32[k * 2] = reshape(%hits_f)""",
)


def good() -> Graph:
    return graph(GOOD, w=np.ones(4, np.float32))


def assert_refused(g: Graph, *facts: Fact, where: Facts = ()) -> None:
    with refused("bad-graph", *facts, where=where, hint=False):
        verify(g)


def edited(index: int, **fields) -> Graph:
    g = good()
    nodes = list(g.nodes)
    nodes[index] = replace(nodes[index], origin="layer 7", **fields)
    return replace(g, nodes=tuple(nodes))


def test_a_sound_graph_passes():
    verify(good())


def test_hooks_see_every_graph_that_passes(monkeypatch):
    seen: list[Graph] = []
    monkeypatch.setattr(verifier, "HOOKS", [seen.append])
    g = good()
    assert_refused(replace(g, nodes=g.nodes[1:]), "'w'", where="y")
    assert [id(s) for s in seen] == [id(g)]


def test_use_before_definition():
    g = good()
    swapped = replace(g, nodes=(g.nodes[1], g.nodes[0], *g.nodes[2:]))
    assert_refused(swapped, "'w'", where="add -> y")


def test_two_definitions():
    g = good()
    assert_refused(replace(g, nodes=(g.nodes[0], *g.nodes)), "'w'", where="constant -> w")


def test_output_without_a_producer():
    g = good()
    assert_refused(replace(g, outputs=(Value("z", tensor(dtypes.f32)),)), "'z'", where="g")


def test_use_under_another_type():
    wrong = (Value("x", tensor(dtypes.f32, 3, 4)), good().nodes[0].outputs[0])
    assert_refused(edited(1, inputs=wrong), "'x'", "f32[3, 4]", "f32[n, 4]", where="layer 7")


def test_declared_type_that_the_operator_does_not_infer():
    wrong = edited(1, outputs=(Value("y", tensor(dtypes.f32, 4)),))
    assert_refused(wrong, "'y'", "f32[4]", "add", "f32[n, 4]", where="layer 7")


def test_operands_that_do_not_fit():
    past = good().inputs[1]
    assert_refused(edited(1, inputs=(past,)), "add", 2, 1, where="layer 7")


def test_unknown_operator():
    assert_refused(edited(1, op="frobnicate"), "'frobnicate'", where="layer 7")


def test_constant_of_another_type():
    wrong = edited(0, outputs=(Value("w", tensor(dtypes.f32, 5)),))
    assert_refused(wrong, "'w'", "f32[5]", "f32[4]", where="layer 7")


def test_attribute_of_no_known_kind():
    assert_refused(edited(1, attrs=(("a", {1}),)), "a={1}", where="layer 7")


def test_attributes_out_of_order():
    assert_refused(edited(1, attrs=(("b", 1), ("a", 1))), where="layer 7")


def test_undeclared_symbol():
    g = good()
    assert_refused(replace(g, symbols=g.symbols[1:]), "'n'", where="'x'")


def test_symbol_used_before_it_is_bound():
    g = good()
    early = Value("s", tensor(dtypes.i64, 1))
    attrs = make_attrs({"values": (arith.Var("k"),), "shape": (1,)})
    node = Node("index_tensor", (), (early,), attrs, "layer 7")
    verify(replace(g, nodes=(*g.nodes, node)))
    assert_refused(replace(g, nodes=(node, *g.nodes)), "'k'", where="layer 7")


def test_symbol_bound_twice():
    g = good()
    again = replace(g.nodes[2], outputs=(Value("again", g.nodes[2].outputs[0].type),))
    assert_refused(replace(g, nodes=(*g.nodes, again)), "'k'", where="nonzero -> again")


def test_symbol_of_an_input_bound_by_a_node():
    g = good()
    wrong = replace(g, symbols=(g.symbols[0], Symbol("k")))
    assert_refused(wrong, "'k'", where="nonzero -> hits")


def test_symbol_declared_twice_or_with_an_empty_range():
    g = good()
    assert_refused(replace(g, symbols=(*g.symbols, g.symbols[0])), "'n'", where="g")
    assert_refused(replace(g, symbols=(Symbol("n", 5, 4), g.symbols[1])), "'n'", "5..4")


def test_state_pairs():
    g = good()
    assert_refused(replace(g, state=(("past", "nothing"),)), "'past'", "'nothing'")
    types = ("f32[n, 4]", "f32[4]")
    assert_refused(replace(g, state=(("x", "next"),)), "'x'", "'next'", *types)
    assert_refused(replace(g, state=(("past", "next"), ("past", "next"))), "state")


BRANCHES = """
graph g(%c: bool[], %x: f32[n]) {
  symbol n: 1..
  %y: f32[n] = if(%c, %x) {else_branch=graph e(%a: f32[n]) {
    %b: f32[n] = neg(%a)
    return %b
  }, then_branch=graph t(%a: f32[n]) {
    %b: f32[n] = exp(%a)
    return %b
  }}
  return %y
}
"""


def test_sub_graphs_see_outer_symbols_but_not_outer_values():
    verify(parse(BRANCHES))
    g = parse(BRANCHES)
    inner = g.nodes[0].attr("then_branch")
    leak = replace(inner, nodes=(replace(inner.nodes[0], inputs=(g.inputs[1],)),))
    attrs = make_attrs({**g.nodes[0].attr_map, "then_branch": leak})
    wrong = replace(g, nodes=(replace(g.nodes[0], attrs=attrs),))
    assert_refused(wrong, "'x'", where="exp -> b")


def test_sizes_agree_in_value_not_in_spelling():
    n, m = arith.Var("n"), arith.Var("m")
    symbols = {"n": Symbol("n", 1), "m": Symbol("m", 2, 9, 2)}
    assert sizes_agree((n + 1) * m, m + n * m, symbols)
    assert sizes_agree(m // 2 * 2, m, symbols)
    assert not sizes_agree(n // 2 * 2, n, symbols)
    assert not sizes_agree(n, n + 1, symbols)
    assert not sizes_agree(arith.Const(2), arith.Const(3), symbols)
    assert types_agree(tensor(dtypes.f32, n), TensorType(dtypes.f32, (n,), device="npu"), symbols)
    assert not types_agree(tensor(dtypes.f32, n), tensor(dtypes.f16, n), symbols)

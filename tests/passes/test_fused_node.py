"""The `fused` node that a group becomes: its body, its text, and what the verifier refuses."""

from __future__ import annotations

import pytest

from ingot.graph.text import parse, show
from ingot.graph.verify import verify
from ingot.passes.fuse import fuse
from tests.graph.graphs import graph
from tests.passes.fusion import checked_groups
from tests.refusal import refused


def test_equal_groups_have_equal_bodies_whatever_their_names():
    g = graph(
        """
graph g(%x: f32[4, 5], %y: f32[4, 5], %b: f32[5]) {
  %a: f32[4, 5] = add(%x, %b)
  %p: f32[4, 5] = exp(%a)
  %c: f32[4, 5] = add(%y, %b)
  %q: f32[4, 5] = exp(%c)
  return %p, %q
}"""
    )
    first, second = checked_groups(g)
    assert first.body == second.body and first.body.name == "add_exp"
    assert first.node.origin == "a; p" and second.node.origin == "c; q"


def test_bodies_keep_layouts_and_print():
    text = """
graph g(%x: f32[1, 3, 4, 4]{layout=[[0, 0], [2, 0], [3, 0], [1, 0]]}) {
  %a: f32[1, 3, 4, 4]{layout=[[0, 0], [2, 0], [3, 0], [1, 0]]} = exp(%x)  # first
  %y: f32[1, 3, 4, 4]{layout=[[0, 0], [2, 0], [3, 0], [1, 0]]} = neg(%a)  # second
  return %y
}"""
    fused = fuse(graph(text))
    (node,) = fused.nodes
    assert all(v.tensor.layout for n in node.attr("body").nodes for v in n.outputs)
    again = parse(show(fused))
    assert again == fused and again.nodes[0].origin == "first; second"
    assert [n.origin for n in again.nodes[0].attr("body").nodes] == ["first", "second"]


def test_sub_graphs_are_fused():
    g = graph(
        """
graph g(%c: bool[], %x: f32[4]) {
  %b: f32[4] = if(%c, %x) {else_branch=graph e(%p: f32[4]) {
    %q: f32[4] = neg(%p)
    %r: f32[4] = exp(%q)
    return %r
  }, then_branch=graph t(%p: f32[4]) {
    return %p
  }}
  return %b
}"""
    )
    (node,) = fuse(g).nodes
    assert [n.attr("body").name for n in node.attr("else_branch").nodes] == ["neg_exp"]
    verify(fuse(g))


FUSED = """graph g(%x: f32[4]) {
  %y: f32[4] = fused(%x) {anchor=none, body=graph exp(%x0: f32[4]) {
    %exp: f32[4] = exp(%x0)
    return %exp
  }, family="elementwise"}  # the node
  return %y
}
"""


@pytest.mark.parametrize(
    ("old", "new", "facts"),
    [
        ("anchor=none", 'anchor="x0"', ["'x0'"]),
        ('family="elementwise"', 'family="no_such"', ["'no_such'"]),
        ("exp(%x0: f32[4])", "exp(%x0: f32[5])", ["f32[5]", "f32[4]"]),
        ("  %y: f32[4] =", '  %y: f32[4]{device="gpu"} =', ["gpu"]),
        ("exp(%x0)", "cast(%x0) {to=f64}", ["f64"]),
        ("return %exp", "return %x0", ["'exp'"]),
        ("return %exp", "view %exp = %x0[0]\n    return %exp", ["'exp'"]),
        ("exp(%x0)", "@0123456789", ["constant"]),
    ],
)
def test_a_wrong_group_is_refused(old: str, new: str, facts: list[str]):
    verify(parse(FUSED))
    assert old in FUSED
    with refused("bad-graph", *facts, hint=False):
        verify(parse(FUSED.replace(old, new, 1)))

"""fuse: two matmuls around a softmax become one attention kernel, and others do not."""

from __future__ import annotations

import pytest

from ingot.passes.fuse import FusionPolicy
from tests.graph.graphs import graph
from tests.passes.fusion import checked_groups, names

ATTENTION = """
graph g(%q: f32[2, 32, 8], %k: f32[2, 40, 8], %v: f32[2, 40, 8], %m: f32[40], %h: f32[]) {
  %t: f32[2, 8, 40] = transpose(%k) {perm=[0, 2, 1]}
  %a: f32[2, 32, 8] = mul(%q, %h)
  %s: f32[2, 32, 40] = matmul(%a, %t)
  %b: f32[2, 32, 40] = add(%s, %m)
  %p: f32[2, 32, 40] = softmax(%b) {axis=2}
  %o: f32[2, 32, 8] = matmul(%p, %v)
  %r: f32[2, 32, 8] = relu(%o)
  %y: f32[32, 2, 8] = transpose(%r) {perm=[1, 0, 2]}
  return %y
}"""


def test_attention_is_one_kernel():
    (group,) = checked_groups(graph(ATTENTION))
    assert group.names == [*"tasbpory"]
    assert group.family == "attention" and group.anchor == "s"
    off = FusionPolicy(attention=None)
    assert names(graph(ATTENTION), off) == ["t a s b", "p", "o r", "y"]


OTHERWISE = {
    "few rows": (" 32,", " 23,"),
    "scores seen outside": ("return %y", "return %y, %b"),
    "columns": ("softmax(%b) {axis=2}", "softmax(%b) {axis=1}"),
    "no reduction between": ("softmax(%b) {axis=2}", "relu(%b)"),
    "rows that nobody reads": ("matmul(%p, %v)", "matmul(%b, %v)"),
    "a row too long": ("40", "8200"),
    "a matrix too large": ("8]", "20000]"),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_other_matmuls_are_not_fused(name: str):
    text = ATTENTION.replace(*OTHERWISE[name])
    if name == "few rows":
        text = text.replace("[32, 2", "[23, 2")
    if name == "a matrix too large":
        text = text.replace("f32[2, 8,", "f32[2, 20000,")
    assert all(group.family != "attention" for group in checked_groups(graph(text)))


@pytest.mark.parametrize(
    ("perm", "shape"), [("[1, 2, 0]", "[32, 8, 2]"), ("[2, 1, 0]", "[8, 32, 2]")]
)
def test_a_transpose_that_moves_the_last_axis_is_not_fused(perm: str, shape: str):
    text = ATTENTION.replace("f32[32, 2, 8] = ", f"f32{shape} = ").replace("[1, 0, 2]", perm)
    assert names(graph(text)) == ["t a s b p o r", "y"]


def test_attention_with_a_softmax_of_primitive_operators():
    small = """  %x: f32[2, 32, 1] = reduce_max(%b) {axes=[2], keepdims=true}
  %d: f32[2, 32, 40] = sub(%b, %x)
  %e: f32[2, 32, 40] = exp(%d)
  %z: f32[2, 32, 1] = reduce_sum(%e) {axes=[2], keepdims=true}
  %p: f32[2, 32, 40] = div(%e, %z)"""
    text = ATTENTION.replace("  %p: f32[2, 32, 40] = softmax(%b) {axis=2}", small)
    assert names(graph(text)) == ["t a s b x d e z p o r y"]

"""fuse: which nodes share a kernel. Attention is in test_fuse_attention.py, the node that a group
becomes in test_fused_node.py."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot import dtypes
from ingot.graph.builder import GraphBuilder
from ingot.graph.interp import run as interpret
from ingot.graph.ir import Graph
from ingot.graph.opdef import Kind
from ingot.graph.store import ConstantStore
from ingot.graph.types import tensor
from ingot.graph.verify import verify
from ingot.passes.fuse import FusionPolicy, fuse
from tests.graph.graphs import graph
from tests.passes.fusion import checked, checked_groups, names

CONV = "{dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]}"
W = np.ones((3, 3, 1, 1), np.float32)


def test_elementwise_chains_are_one_kernel():
    g = graph(
        """
graph g(%x: f32[4, 5], %y: f32[5]) {
  %a: f32[4, 5] = add(%x, %y)
  %b: f32[4, 5] = exp(%a)
  %c: f32[4, 5] = mul(%b, %a)
  %d: f32[5, 4] = transpose(%c) {perm=[1, 0]}
  return %d
}"""
    )
    (group,) = checked_groups(g)
    assert group.ops == ["add", "exp", "mul", "transpose"]
    assert group.node.inputs == g.inputs and group.node.outputs == g.outputs
    assert group.anchor is None and group.family == "elementwise"


@pytest.mark.parametrize(("op", "most"), [("exp", 32), ("neg", 64)])
def test_a_long_chain_is_cut_where_its_work_hides_the_memory(op, most):
    b = GraphBuilder("g", ConstantStore())
    value = b.input("x", tensor(dtypes.f32, 8))
    for _ in range(2 * most + 3):
        value = b.add(op, [value])
    assert [len(group.ops) for group in checked_groups(b.finish([value]))] == [3, most, most]


def test_an_epilogue_with_a_residual_fuses_into_the_contraction():
    g = graph(
        f"""
graph g(%x: f32[1, 3, 4, 4]) {{
  %w: f32[3, 3, 1, 1] = @w
  %b: f32[3, 1, 1] = @b
  %p: f32[1, 3, 4, 4] = conv(%x, %w) {CONV}
  %q: f32[1, 3, 4, 4] = conv(%x, %w) {CONV}
  %a: f32[1, 3, 4, 4] = add(%p, %b)
  %r: f32[1, 3, 4, 4] = add(%a, %q)
  %y: f32[1, 3, 4, 4] = relu(%r)
  return %y
}}""",
        w=W,
        b=np.ones((3, 1, 1), np.float32),
    )
    assert names(g) == ["q", "p a r y"]
    first, second = checked_groups(g)
    assert second.anchor == "p" and second.family == first.family == "conv"
    assert [v.name for v in second.node.inputs if v] == ["x", "w", "b", "q"]


def test_what_an_epilogue_reads_comes_before_the_contraction():
    """A scale that is computed at run time: its nest is not between the tile and the epilogue."""
    g = graph(
        """
        graph g(%x: f32[1, 8, 32, 32], %w: f32[16, 8, 1, 1], %a: f32[], %s: f32[16, 1, 1]) {
          %y: f32[1, 16, 32, 32] = conv(%x, %w)
          %scale: f32[16, 1, 1] = mul(%s, %a)
          %z: f32[1, 16, 32, 32] = mul(%y, %scale)
          return %z
        }
        """
    )
    (group,) = checked_groups(g)
    assert group.names == ["scale", "y", "z"]


def test_an_epilogue_may_fork_and_join():
    g = graph(
        """
graph g(%x: f32[4, 5], %w: f32[5, 6], %h: f32[]) {
  %p: f32[4, 6] = matmul(%x, %w)
  %a: f32[4, 6] = erf(%p)
  %b: f32[4, 6] = mul(%a, %p)
  %y: f32[4, 6] = mul(%b, %h)
  return %y
}"""
    )
    assert names(g) == ["p a b y"]


def test_a_value_that_is_seen_outside_ends_its_group():
    g = graph(
        """
graph g(%x: f32[4, 5], %w: f32[5, 6]) {
  %p: f32[4, 6] = matmul(%x, %w)
  %a: f32[4, 6] = relu(%p)
  %b: f32[4, 6] = exp(%a)
  %c: f32[6, 4] = transpose(%a) {perm=[1, 0]}
  return %b, %c, %a
}"""
    )
    assert names(g) == ["p a", "b", "c"]


def test_a_transpose_does_not_fuse_but_the_epilogue_before_it_does():
    g = graph(
        """
graph g(%x: f32[4, 5], %w: f32[5, 6], %b: f32[6]) {
  %p: f32[4, 6] = matmul(%x, %w)
  %a: f32[4, 6] = add(%p, %b)
  %c: f32[6, 4] = transpose(%a) {perm=[1, 0]}
  %y: f32[6, 4] = exp(%c)
  return %y
}"""
    )
    assert names(g) == ["p a", "c y"]


def test_a_pad_does_not_fuse_into_a_transpose_by_tiles():
    """Masked loads would keep the tiles out of registers. One that moves rows only is no such."""
    text = """
graph g(%x: u8[2, 3, 5]) {{
  %v: u8[2, 3, 5] = max(%x, %x)
  %p: u8[2, 4, 6] = pad(%v) {{before=[0, 0, 0], after=[0, 1, 1]}}
  %y: u8[{shape}] = transpose(%p) {{perm={perm}}}
  return %y
}}"""
    assert names(graph(text.format(shape="2, 6, 4", perm="[0, 2, 1]"))) == ["v p", "y"]
    assert names(graph(text.format(shape="4, 2, 6", perm="[1, 0, 2]"))) == ["v p y"]


def test_a_larger_shape_does_not_fuse():
    g = graph(
        """
graph g(%x: f32[4, 5], %y: f32[4, 5]) {
  %m: f32[4, 1] = reduce_mean(%x) {axes=[1], keepdims=true}
  %d: f32[4, 5] = sub(%y, %m)
  return %d
}"""
    )
    assert names(g) == ["m", "d"]


def test_cheap_producers_fuse_into_a_reduction_and_costly_ones_do_not():
    text = """
graph g(%x: f32[4, 5], %mask: f32[5]) {
  %a: f32[4, 5] = OP
  %s: f32[4, 5] = softmax(%a) {axis=1}
  %y: f32[4, 5] = neg(%s)
  return %y
}"""
    cheap = graph(text.replace("OP", "add(%x, %mask)"))
    assert names(cheap) == ["a s y"]
    assert checked_groups(cheap)[0].family == "softmax"
    assert names(graph(text.replace("OP", "tanh(%x)"))) == ["a", "s y"]
    behind = text.replace("OP", "add(%t, %mask)").replace(
        "  %a:", "  %t: f32[4, 5] = tanh(%x)\n  %a:"
    )
    assert names(graph(behind)) == ["t", "a s y"]


def test_only_cheap_work_on_constants_fuses_into_a_convolution():
    text = """
graph g(%x: f32[1, 4, 5]) {
  %w: f16[6, 4, 3] = @w
  %v: f32[6, 4, 3] = cast(%w) {to=f32}
  %a: f32[1, 4, 5] = relu(%x)
  %y: f32[1, 6, 3] = conv(%a, %v)
  return %y
}"""
    assert names(graph(text, w=np.ones((6, 4, 3), np.float16))) == ["a", "v y"]


@pytest.mark.parametrize(
    ("op", "want"),
    [("neg(%x)", ["t a y"]), ("tanh(%x)", ["a", "t y"]), ("reduce_sum(%z)", ["a", "t y"])],
)
def test_cheap_work_and_transposes_fuse_into_a_matmul(op: str, want: list[str]):
    text = """
graph g(%x: f32[4, 5], %z: f32[2, 4, 5], %w: f32[6, 5]) {
  %t: f32[5, 6] = transpose(%w) {perm=[1, 0]}
  %a: f32[4, 5] = OP
  %y: f32[4, 6] = matmul(%a, %t)
  return %y
}"""
    attrs = " {axes=[0], keepdims=false}" if "reduce" in op else ""
    assert names(graph(text.replace("OP", op + attrs))) == want


def test_costly_work_is_not_repeated_by_a_broadcast():
    text = """
graph g(%x: f32[5], %y: f32[4, 5]) {
  %a: f32[5] = OP(%x)
  %z: f32[4, 5] = add(%y, %a)
  return %z
}"""
    assert names(graph(text.replace("OP", "tanh"))) == ["a", "z"]
    assert names(graph(text.replace("OP", "neg"))) == ["a z"]


def test_groups_do_not_grow_without_end():
    lines = ["%v0: f32[9] = neg(%x)"]
    lines += [f"%v{i}: f32[9] = add(%v{i - 1}, %v{i - 1})" for i in range(1, 12)]
    g = graph(f"graph g(%x: f32[9]) {{\n{chr(10).join(lines)}\nreturn %v11\n}}")
    assert [len(group.split()) for group in names(g)] == [4, 4, 4]


def test_tiny_cheap_values_are_computed_where_they_are_read():
    text = """
graph g(%k: f32[SIZE], %x: f32[9, SIZE], %w: f32[9, SIZE]) {
  %a: f32[SIZE] = neg(%k)
  %p: f32[9, SIZE] = add(%x, %a)
  %q: f32[9, SIZE] = mul(%w, %a)
  return %p, %q
}"""
    assert names(graph(text.replace("SIZE", "4"))) == ["a p", "a q"]
    assert names(graph(text.replace("SIZE", "400"))) == ["a", "p", "q"]


def test_nodes_with_symbols_or_sub_graphs_are_not_fused():
    g = graph(
        """
graph g(%c: bool[], %x: f32[n]) {
  symbol n: 1..
  symbol k: 0.. from node
  %a: f32[n] = neg(%x)
  %hits: i64[1, k] = nonzero(%a) {symbols=["k"]}
  %b: f32[n] = if(%c, %a) {else_branch=graph e(%p: f32[n]) {
    return %p
  }, then_branch=graph t(%p: f32[n]) {
    return %p
  }}
  %d: f32[n] = exp(%b)
  %s: i64[1] = index_tensor() {shape=[1], values=[k]}
  %e: i64[1, k] = mul(%hits, %s)
  return %d, %e
}"""
    )
    assert names(g) == ["a", "hits", "b", "d", "s e"]
    assert [n.op for n in fuse(g).nodes] == ["fused", "nonzero", "if", "fused", "fused"]


def test_views_are_not_fused_and_need_no_kernel():
    g = graph(
        """
graph g(%x: f32[n, m], %w: f32[m, 3]) {
  symbol n: 1..
  symbol m: 1..
  %a: f32[n, 3] = matmul(%x, %w)
  %b: f32[n, 3] = relu(%a)
  %v: f32[3 * n] = reshape(%b) {shape=[3 * n]}
  %y: f32[3 * n] = exp(%v)
  return %y
}"""
    )
    assert names(g) == ["a b", "v", "y"]
    assert [n.op for n in fuse(g).nodes] == ["fused", "reshape", "fused"]


def test_injective_nodes_of_dynamic_shape_take_costly_producers():
    g = graph(
        """
graph g(%x: f32[n, m]) {
  symbol n: 1..
  symbol m: 1..
  %a: f32[n, m] = tanh(%x)
  %y: f32[m, n] = transpose(%a) {perm=[1, 0]}
  return %y
}"""
    )
    assert names(g) == ["a y"]


@pytest.mark.parametrize("op", ["relu", "identity"])
def test_a_lone_node_is_a_group(op):
    g = graph(f"graph g(%x: f32[2]) {{\n%y: f32[2] = {op}(%x)\nreturn %y\n}}")
    assert names(g) == ["y"]


UNARY = ("neg", "exp", "relu", "softmax", "reduce_sum", "transpose", "nonzero", "cast")


@st.composite
def random_graphs(draw) -> tuple[Graph, ConstantStore]:
    g = GraphBuilder("random", ConstantStore())
    values = [g.input(f"x{i}", tensor(dtypes.f32, 32, 32)) for i in range(2)]
    values.append(g.constant(np.ones((32, 32), np.float32)))
    for _ in range(draw(st.integers(1, 14))):
        op = draw(st.sampled_from((*UNARY, "add", "mul", "matmul", "add", "mul")))
        a, b = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        if op == "nonzero":
            hits = g.add(op, [a], symbols=(g.symbol("k"),))
            size = g.add("index_tensor", [], values=(hits.shape[1],), shape=())
            values.append(g.add("add", [b, g.add("cast", [size], to=dtypes.f32)]))
        elif op == "reduce_sum":
            values.append(g.add("add", [b, g.add(op, [a], axes=(1,), keepdims=True)]))
        elif op in UNARY:
            attrs = {"softmax": {"axis": 1}, "transpose": {"perm": (1, 0)}}
            extra = attrs.get(op, {"to": dtypes.f32} if op == "cast" else {})
            values.append(g.add(op, [a], **extra))
        else:
            values.append(g.add(op, [a, b]))
    outputs = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3, unique_by=id))
    return g.finish(outputs), g.store


@given(random_graphs())
@settings(max_examples=150, deadline=None)
def test_every_partition_keeps_the_invariants_and_the_outputs(made):
    g, store = made
    verify(g)
    fused = checked(g)
    arrays = [np.random.default_rng(k).normal(size=(32, 32)).astype(np.float32) for k in (1, 2)]
    for want, got in zip(interpret(g, store, arrays), interpret(fused, store, arrays)):
        np.testing.assert_array_equal(want, got)


# --- policies -----------------------------------------------------------------------------------

GEMM = """
graph g(%x: f32[4, 5], %w: f32[5, 6], %b: f32[6]) {
  %n: f32[4, 5] = neg(%x)
  %p: f32[4, 6] = matmul(%n, %w)
  %a: f32[4, 6] = add(%p, %b)
  %r: f32[4, 6] = relu(%a)
  %t: f32[6, 4] = transpose(%r) {perm=[1, 0]}
  %y: f32[6, 4] = exp(%t)
  return %y
}"""


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        (FusionPolicy(), ["n p a r", "t y"]),
        (FusionPolicy(max_epilogue=0), ["n p", "a r t y"]),
        (FusionPolicy(max_epilogue=1), ["n p a", "r t y"]),
        (FusionPolicy(fuses_before_anchors=False), ["n", "p a r", "t y"]),
        (FusionPolicy(producers=(Kind.INJECTIVE,)), ["n", "p a r", "t y"]),
        (FusionPolicy(producers=()), ["n", "p a r", "t", "y"]),
        (FusionPolicy(max_work=1), ["n", "p a r", "t", "y"]),
    ],
)
def test_a_policy_says_what_fuses(policy: FusionPolicy, want: list[str]):
    assert names(graph(GEMM), policy) == want

"""fuse: which nodes share a kernel, and the checked_groups every partition keeps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot import dtypes
from ingot.graph.builder import GraphBuilder
from ingot.graph.interp import run as interpret
from ingot.graph.ir import Graph, Node, replace
from ingot.graph.opdef import Kind, defn
from ingot.graph.store import ConstantStore
from ingot.graph.text import parse, show
from ingot.graph.types import tensor
from ingot.graph.verify import verify
from ingot.passes.edit import constant_ref
from ingot.passes.fuse import DEFAULT_POLICY, FusionPolicy, fuse
from tests.graph.graphs import graph
from tests.refusal import refused


@dataclass(frozen=True)
class Group:
    """A kernel of a fused graph; `names` are those that its nodes' outputs had before."""

    node: Node
    names: list[str]

    @property
    def ops(self) -> list[str]:
        return [n.op for n in self.body.nodes]

    @property
    def body(self) -> Graph:
        return self.node.attr("body")

    @property
    def family(self) -> str:
        return self.node.attr("family")

    @property
    def anchor(self) -> str | None:
        """The name that the anchor had before."""
        made = {v.name: n.origin for n in self.body.nodes for v in n.outputs}
        return made.get(self.node.attr("anchor"))


def checked(g: Graph, policy: FusionPolicy = DEFAULT_POLICY) -> Graph:
    """The fused graph; its origins are the names of the values before. It is valid and stays so,
    computes each value of the graph, and has one heavy operator in a group, or attention."""
    named = tuple(replace(n, origin=n.outputs[0].name) for n in g.nodes)
    fused = fuse(replace(g, nodes=named), policy)
    verify(fused)
    assert fuse(fused, policy) == fused
    for group in groups_of(fused):
        heavy = [n for n in group.body.nodes if defn(n).kind in (Kind.REDUCTION, Kind.CONTRACTION)]
        assert len(heavy) <= 1 or group.family == "attention"
        read = {v.name for n in group.body.nodes for v in n.inputs if v is not None}
        inner = {v.name for n in group.body.nodes[:-1] for v in n.outputs}
        assert inner | {v.name for v in group.body.inputs} <= read, "a member nobody reads"
        assert group.body.outputs == group.body.nodes[-1].outputs
    seen = {name for names in every(fused) for name in names}
    assert seen == {n.outputs[0].name for n in g.nodes}
    return fused


def groups_of(fused: Graph) -> list[Group]:
    nodes = [n for n in fused.nodes if n.op == "fused"]
    return [Group(n, [inner.origin for inner in n.attr("body").nodes]) for n in nodes]


def every(fused: Graph) -> list[list[str]]:
    """The former names of each node of a fused graph, constants included."""
    found = {g.node.outputs[0].name: g.names for g in groups_of(fused)}
    return [found.get(n.outputs[0].name, [n.origin]) for n in fused.nodes]


def checked_groups(g: Graph, policy: FusionPolicy = DEFAULT_POLICY) -> list[Group]:
    return groups_of(checked(g, policy))


def names(g: Graph, policy: FusionPolicy = DEFAULT_POLICY) -> list[str]:
    """Each node but constants as the names of its values, in order."""
    fused = checked(g, policy)
    pairs = zip(fused.nodes, every(fused))
    return [" ".join(group) for node, group in pairs if constant_ref(node) is None]


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


# --- the node -----------------------------------------------------------------------------------


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

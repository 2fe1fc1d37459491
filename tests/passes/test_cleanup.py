"""remove_dead_code, merge_common, specialize: before and after, with equal outputs."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.graph.store import ConstantStore
from ingot.graph.text import show
from ingot.passes.merge_common import merge_common
from ingot.passes.remove_dead_code import remove_dead_code
from ingot.passes.specialize import specialize
from tests.graph.graphs import agree, expect, graph
from tests.refusal import refused

DEAD = """
graph g(%x: f32[n], %unused: f32[m]) {
  symbol n: 1..
  symbol m: 1..
  symbol k: 0.. from node
  symbol dead: 0.. from node
  %one: f32[] = @one  # weight
  %gone: f32[n] = exp(%x)
  %hits: i64[1, k] = nonzero(%x) {symbols=["k"]}
  %more: i64[1, dead] = nonzero(%gone) {symbols=["dead"]}
  %y: f32[k] = fill(%one) {shape=[k]}  # ones
  return %y
}
"""


def test_dead_nodes_go_and_a_node_that_binds_a_live_size_stays():
    store = ConstantStore()
    g = graph(DEAD, store, one=np.float32(1))
    after = remove_dead_code(g, store)
    wanted = """
graph g(%x: f32[n], %unused: f32[m]) {
  symbol n: 1..
  symbol m: 1..
  symbol k: 0.. from node
  %one: f32[] = @one  # weight
  %hits: i64[1, k] = nonzero(%x) {symbols=["k"]}
  %y: f32[k] = fill(%one) {shape=[k]}  # ones
  return %y
}
"""
    expect(after, wanted, store, one=np.float32(1))
    agree(g, after, store)
    assert remove_dead_code(after, store) == after


def test_a_size_used_only_in_a_sub_graph_is_live():
    store = ConstantStore()
    g = graph(
        """
graph g(%c: bool[], %x: f32[3]) {
  symbol k: 0.. from node
  %hits: i64[1, k] = nonzero(%x) {symbols=["k"]}
  %y: i64[] = if(%c) {else_branch=graph e() {
    %dead: i64[1] = index_tensor() {shape=[1], values=[4]}
    %k: i64[] = index_tensor() {shape=[], values=[k]}
    return %k
  }, then_branch=graph t() {
    %k: i64[] = index_tensor() {shape=[], values=[k + 1]}
    return %k
  }}
  return %y
}""",
        store,
    )
    after = remove_dead_code(g, store)
    agree(g, after, store)
    assert "nonzero" in show(after)
    assert "%dead" not in show(after)


def test_common_values_and_constants_merge():
    store = ConstantStore()
    two = np.full(3, 2, np.float32)
    g = graph(
        """
graph g(%x: f32[3]) {
  %a: f32[3] = @two
  %b: f32[3] = @two
  %p: f32[3] = mul(%x, %a)  # first
  %q: f32[3] = mul(%x, %b)  # second
  %r: f32[3] = leaky_relu(%p) {alpha=0.0}
  %s: f32[3] = leaky_relu(%q) {alpha=-0.0}
  %t: f32[3] = add(%r, %s)
  return %t
}""",
        store,
        two=two,
    )
    after = merge_common(g, store)
    wanted = """
graph g(%x: f32[3]) {
  %a: f32[3] = @two
  %p: f32[3] = mul(%x, %a)  # first
  %r: f32[3] = leaky_relu(%p) {alpha=0.0}
  %s: f32[3] = leaky_relu(%p) {alpha=-0.0}
  %t: f32[3] = add(%r, %s)
  return %t
}"""
    expect(after, wanted, store, two=two)
    agree(g, after, store)
    assert merge_common(after, store) == after


def test_equal_outputs_keep_both_names():
    store = ConstantStore()
    g = graph(
        """
graph g(%x: f32[3]) {
  %a: f32[3] = exp(%x)
  %b: f32[3] = exp(%x)  # twin
  return %a, %b
}""",
        store,
    )
    after = merge_common(g, store)
    wanted = """
graph g(%x: f32[3]) {
  %a: f32[3] = exp(%x)
  %b: f32[3] = identity(%a)  # twin
  return %a, %b
}"""
    expect(after, wanted, store)
    agree(g, after, store)
    assert merge_common(after, store) == after


def test_sizes_bound_by_merged_nodes_are_one_size():
    store = ConstantStore()
    g = graph(
        """
graph g(%x: f32[n]) {
  symbol n: 1..
  symbol k: 0.. from node
  symbol m: 0.. from node
  %a: i64[1, k] = nonzero(%x) {symbols=["k"]}
  %b: i64[1, m] = nonzero(%x) {symbols=["m"]}
  %c: i64[m] = reshape(%b) {shape=[m]}
  %d: i64[k] = reshape(%a) {shape=[k]}
  %e: i64[m] = neg(%c)
  return %e, %d
}""",
        store,
    )
    after = merge_common(g, store)
    wanted = """
graph g(%x: f32[n]) {
  symbol n: 1..
  symbol k: 0.. from node
  %a: i64[1, k] = nonzero(%x) {symbols=["k"]}
  %d: i64[k] = reshape(%a) {shape=[k]}
  %e: i64[k] = neg(%d)
  return %e, %d
}"""
    expect(after, wanted, store)
    agree(g, after, store)


def test_sub_graphs_merge_within_themselves():
    store = ConstantStore()
    branch = """(%a: f32[2]) {
    %p: f32[2] = exp(%a)
    %q: f32[2] = exp(%a)
    %r: f32[2] = add(%p, %q)
    return %r
  }"""
    g = graph(
        f"""
graph g(%c: bool[], %x: f32[2]) {{
  %y: f32[2] = if(%c, %x) {{else_branch=graph e{branch}, then_branch=graph t{branch}}}
  return %y
}}""",
        store,
    )
    after = merge_common(g, store)
    agree(g, after, store)
    assert show(after).count("exp") == 2


SIZES = """
graph g(%x: f32[batch, seq * 2], %y: f32[seq]) {
  symbol batch: 1..
  symbol seq: 2..1024 step 2
  symbol k: 0.. from node
  %hits: i64[1, k] = nonzero(%y) {symbols=["k"]}
  %z: f32[batch * seq, 2] = reshape(%x) {shape=[batch * seq, 2]}
  %s: i64[2] = index_tensor() {shape=[2], values=[batch, seq // 2]}
  return %z, %s
}
"""


def test_a_size_given_a_number_is_that_number_everywhere():
    store = ConstantStore()
    after = specialize(graph(SIZES, store), {"batch": 3, "seq": (5, 512)})
    wanted = """
graph g(%x: f32[3, seq * 2], %y: f32[seq]) {
  symbol seq: 6..512 step 2
  symbol k: 0.. from node
  %hits: i64[1, k] = nonzero(%y) {symbols=["k"]}
  %z: f32[3 * seq, 2] = reshape(%x) {shape=[3 * seq, 2]}
  %s: i64[2] = index_tensor() {shape=[2], values=[3, seq // 2]}
  return %z, %s
}
"""
    expect(after, wanted, store)
    agree(graph(SIZES, store), after, store)
    fixed = specialize(after, {"seq": (6, 6)})
    assert "values=[3, 3]" in show(fixed) and "symbol seq" not in show(fixed)
    agree(after, fixed, store)


@pytest.mark.parametrize(
    "shapes, facts, hint",
    [
        ({"sequence": 3}, ("'sequence'",), ("batch", "seq")),
        ({"k": 3}, ("'k'",), ("batch", "seq")),
        ({"seq": 3}, ("'seq'", 3, "2..1024", 2), False),
        ({"seq": 2000}, ("'seq'", 2000, "2..1024", 2), False),
        ({"batch": 0}, ("'batch'", 0, "1.."), False),
        ({"seq": (7, 7)}, ("'seq'", 7, "2..1024", 2), False),
        ({"seq": (2000, None)}, ("'seq'", 2000, "2..1024", 2), False),
        ({"seq": (8, 4)}, ("'seq'", 8, 4), False),
        ({"batch": (0, 4)}, ("'batch'", 0, 4, "1.."), False),
        ({"seq": (2, 1026)}, ("'seq'", 2, 1026, "2..1024"), False),
    ],
)
def test_sizes_that_the_model_refuses(shapes, facts, hint):
    with refused("bad-option", *facts, hint=hint):
        specialize(graph(SIZES), shapes)


def test_branches_that_now_agree_bind_no_size():
    store = ConstantStore()
    g = graph(
        """
graph g(%c: bool[], %x: f32[n, m], %y: f32[4, m]) {
  symbol n: 1..
  symbol m: 1..
  symbol k: 0.. from node
  %z: f32[k, m] = if(%c, %x, %y) {else_branch=graph e(%p: f32[n, m], %q: f32[4, m]) {
    return %p
  }, symbols=["k"], then_branch=graph t(%p: f32[n, m], %q: f32[4, m]) {
    return %q
  }}
  %s: i64[] = index_tensor() {shape=[], values=[k * 2]}
  return %z, %s
}""",
        store,
    )
    after = specialize(g, {"n": 4})
    agree(g, after, store)
    assert "%z: f32[4, m]" in show(after) and "values=[8]" in show(after)
    assert "symbol k" not in show(after)
    other = specialize(g, {"n": 3})
    agree(g, other, store)
    assert "symbol k" in show(other)

"""inline_branches: an `if` on a constant is the nodes of the branch it takes."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.graph.store import ConstantStore
from ingot.graph.text import show
from ingot.passes.inline_branches import inline_branches
from ingot.passes.remove_dead_code import remove_dead_code
from tests.graph.graphs import agree, expect, graph

TEXT = """
graph g(%x: f32[n]) {
  symbol n: 1..
  symbol k: 0.. from node
  symbol hits: 0.. from node
  %c: bool[] = @c
  %first: i64[1, hits] = nonzero(%x) {symbols=["hits"]}
  %y: f32[k], %z: f32[n] = if(%c, %x) {else_branch=graph e(%p: f32[n]) {
    %q: f32[n] = neg(%p)  # in the branch
    return %q, %p
  }, symbols=["k"], then_branch=graph t(%p: f32[n]) {
    symbol m: 0.. from node
    %q: i64[1, m] = nonzero(%p) {symbols=["m"]}
    %r: i64[m] = reshape(%q) {shape=[m]}
    %s: f32[m] = cast(%r) {to=f32}
    return %s, %p
  }}  # check
  %size: i64[] = index_tensor() {shape=[], values=[k]}
  %w: f32[k] = exp(%y)
  return %w, %size, %z, %first
}
"""


@pytest.mark.parametrize("flag", [True, False])
def test_the_branch_taken_stands_in_place(flag):
    store = ConstantStore()
    g = graph(TEXT, store, c=np.array(flag))
    after = remove_dead_code(inline_branches(g, store), store)
    agree(g, after, store)
    assert inline_branches(after, store) == after
    then = """
graph g(%x: f32[n]) {
  symbol n: 1..
  symbol hits: 0.. from node
  symbol m_1: 0.. from node
  %first: i64[1, hits] = nonzero(%x) {symbols=["hits"]}
  %q: i64[1, m_1] = nonzero(%x) {symbols=["m_1"]}
  %r: i64[m_1] = reshape(%q) {shape=[m_1]}
  %s: f32[m_1] = cast(%r) {to=f32}
  %size: i64[] = index_tensor() {shape=[], values=[m_1]}
  %w: f32[m_1] = exp(%s)
  %z: f32[n] = identity(%x)  # check
  return %w, %size, %z, %first
}
"""
    other = """
graph g(%x: f32[n]) {
  symbol n: 1..
  symbol hits: 0.. from node
  %first: i64[1, hits] = nonzero(%x) {symbols=["hits"]}
  %q: f32[n] = neg(%x)  # in the branch
  %size: i64[] = index_tensor() {shape=[], values=[n]}
  %w: f32[n] = exp(%q)
  %z: f32[n] = identity(%x)  # check
  return %w, %size, %z, %first
}
"""
    expect(after, then if flag else other, store)


def test_nested_ifs_and_names_that_meet():
    store = ConstantStore()
    inner = """if(%c, %p) {else_branch=graph e(%x: f32[2]) {
      return %x
    }, then_branch=graph t(%x: f32[2]) {
      %y: f32[2] = exp(%x)
      return %y
    }}"""
    g = graph(
        f"""
graph g(%c: bool[], %x: f32[2]) {{
  %true: bool[] = @true
  %y: f32[2] = if(%true, %true, %x) {{else_branch=graph e(%c: bool[], %p: f32[2]) {{
    return %p
  }}, then_branch=graph t(%c: bool[], %p: f32[2]) {{
    %y: f32[2] = {inner}
    %x: f32[2] = neg(%y)
    return %x
  }}}}
  %z: f32[2] = if(%c, %y) {{else_branch=graph e(%p: f32[2]) {{
    %c: bool[] = @true
    %y: f32[2] = {inner}
    return %y
  }}, then_branch=graph t(%p: f32[2]) {{
    return %p
  }}}}
  return %z, %y
}}""",
        store,
        true=np.array(True),
    )
    after = remove_dead_code(inline_branches(g, store), store)
    agree(g, after, store, seeds=6)
    assert show(after).count(" if(") == 1
    assert show(after).count("exp") == 2


def test_an_unknown_condition_stays():
    store = ConstantStore()
    text = TEXT.replace("%x: f32[n])", "%c: bool[], %x: f32[n])", 1).replace(
        "  %c: bool[] = @c\n", ""
    )
    g = graph(text, store)
    assert inline_branches(g, store) == g

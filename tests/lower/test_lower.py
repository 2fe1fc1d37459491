"""lower: one kernel for each distinct group, one launch for each node, and nothing for views."""

from __future__ import annotations

from ingot.graph.store import ConstantStore
from ingot.graph.text import parse
from ingot.lower.lower import lower
from ingot.lower.merge_axes import merge_axes, merge_program_axes
from ingot.passes.fuse import fuse
from ingot.program import ir
from ingot.program.tables import walk
from tests.graph.graphs import graph

TWICE = """
graph g(%x: f32[2, 4, 5], %y: f32[2, 4, 5], %z: f32[4, 5]) {
  %a: f32[2, 4, 5] = exp(%x)  # first
  %b: f32[2, 4, 5] = exp(%y)  # second
  %c: f32[4, 5] = exp(%z)  # third
  return %a, %b, %c
}"""


def launches(program: ir.Program) -> list[ir.Launch]:
    return [s for s in walk(program.body) if isinstance(s, ir.Launch)]


def test_equal_groups_share_a_kernel_and_keep_their_origins():
    program = lower(fuse(graph(TWICE)), ConstantStore())
    found = [(s.kernel, s.args, s.origin) for s in launches(program)]
    assert found == [
        ("exp", ("x", "a"), "first"), ("exp", ("y", "b"), "second"), ("exp.1", ("z", "c"), "third"),
    ]  # fmt: skip
    assert [(name, k.name, k.family) for name, k in program.kernels] == [
        ("exp", "exp", "elementwise"), ("exp.1", "exp.1", "elementwise"),
    ]  # fmt: skip


def test_a_node_outside_a_group_is_a_kernel_of_its_own():
    plain = lower(graph(TWICE), ConstantStore())
    assert [s.kernel for s in launches(plain)] == ["exp", "exp", "exp.1"]


def test_axes_are_merged_after_lowering_and_names_kept():
    lowered = lower(fuse(graph(TWICE)), ConstantStore())
    merged = merge_program_axes(lowered)
    ranks = [[p.rank for p in k.params] for _, k in (*lowered.kernels, *merged.kernels)]
    assert ranks == [[3, 3], [2, 2], [1, 1], [1, 1]]
    other = ir.replace(lowered.kernel_map["exp"], name="mine", origin="me", family="pool")
    again = merge_axes(other)  # equal to a kernel that was merged before
    assert (again.name, again.origin, again.family) == ("mine", "me", "pool")
    assert again == merged.kernel_map["exp"]


def test_the_name_of_a_body_is_the_kernels_name():
    text = """
graph g(%x: f32[4]) {
  %y: f32[4] = fused(%x) {anchor=none, body=graph mine(%x0: f32[4]) {
    %exp: f32[4] = exp(%x0)
    return %exp
  }, family="elementwise"}
  return %y
}"""
    assert [s.kernel for s in launches(lower(parse(text), ConstantStore()))] == ["mine"]

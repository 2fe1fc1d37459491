"""fold_constants: what becomes a constant, and the limits that keep a model from growing."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ingot import api, pipeline
from ingot.graph.ir import Graph
from ingot.graph.store import ConstantStore
from ingot.graph.text import show
from ingot.passes.fold_constants import fold_constants
from ingot.passes.remove_dead_code import remove_dead_code
from ingot.support import options
from tests.graph.graphs import agree, expect, graph


def fold(g: Graph, store: ConstantStore, **options: int) -> Graph:
    after = remove_dead_code(fold_constants(g, store, **options), store)
    agree(g, after, store)
    assert fold_constants(after, store, **options) == after
    return after


def test_constant_arithmetic_is_done_now():
    store = ConstantStore()
    a, b = np.array([1, 2], np.float32), np.array([3, 5], np.float32)
    g = graph(
        """
graph g(%x: f32[2]) {
  %a: f32[2] = @a
  %b: f32[2] = @b
  %c: f32[2] = add(%a, %b)  # sum
  %d: f32[2] = mul(%c, %c)
  %y: f32[2] = sub(%x, %d)
  return %y, %c
}""",
        store,
        a=a,
        b=b,
    )
    wanted = """
graph g(%x: f32[2]) {
  %c: f32[2] = @c  # sum
  %d: f32[2] = @d
  %y: f32[2] = sub(%x, %d)
  return %y, %c
}"""
    expect(fold(g, store), wanted, store, c=a + b, d=(a + b) ** 2)


def test_sizes_bound_by_constants_become_numbers():
    store = ConstantStore()
    g = graph(
        """
graph g(%x: f32[12]) {
  symbol a: 0.. from node
  symbol b: 0.. from node
  %s: i64[2] = @s
  %t: i64[2] = bind(%s) {symbols=["a", "b"]}
  %y: f32[a, b] = reshape(%x) {shape=[a, b]}
  %n: i64[1] = index_tensor() {shape=[1], values=[a * b]}
  return %y, %n
}""",
        store,
        s=np.array([3, 4]),
    )
    wanted = """
graph g(%x: f32[12]) {
  %y: f32[3, 4] = reshape(%x) {shape=[3, 4]}
  %n: i64[1] = @n
  return %y, %n
}"""
    expect(fold(g, store), wanted, store, n=np.array([12]))


def test_a_size_out_of_its_range_is_left_to_fail_when_run():
    store = ConstantStore()
    text = """
graph g(%x: f32[1]) {
  symbol a: 0.. from node
  %s: i64[1] = @s
  %t: i64[1] = bind(%s) {symbols=["a"]}
  %y: f32[a] = expand(%x) {shape=[a]}
  return %y
}"""
    g = graph(text, store, s=np.array([-3]))
    assert fold_constants(g, store) == g


GROW = """
graph g(%x: f32[SIZE]) {
  %a: f32[ROWS] = @a
  %b: f32[SIZE] = expand(%a_) {shape=[SIZE]}
  %y: f32[SIZE] = add(%x, %b)
  return %y
}"""


def grow(rows: int, columns: int, store: ConstantStore) -> Graph:
    text = GROW.replace("expand(%a_)", "expand(%a)").replace("SIZE", f"{columns}, {rows}")
    return graph(text.replace("ROWS", str(rows)), store, a=np.arange(rows, dtype=np.float32))


def test_a_result_much_larger_than_its_operands_is_not_kept():
    store = ConstantStore()
    assert "expand" in show(fold(grow(10_000, 5, store), store))
    assert "expand" not in show(fold(grow(10_000, 4, store), store))
    assert "expand" not in show(fold(grow(4, 1000, store), store))  # 16 kB: little


def test_a_result_over_the_limit_is_not_kept():
    store = ConstantStore()
    g = grow(10_000, 2, store)
    assert "expand" in show(fold(g, store, limit_bytes=79_999))
    assert "expand" not in show(fold(g, store, limit_bytes=80_000))


def test_a_transpose_is_as_large_as_its_operand():
    store = ConstantStore()
    text = """
graph g() {
  %a: f32[300, 200] = @a
  %b: f32[200, 300] = transpose(%a) {perm=[1, 0]}
  %c: f32[200, 300] = neg(%b)
  return %c
}"""
    kept = show(
        fold(graph(text, store, a=np.ones((300, 200), np.float32)), store, limit_bytes=1000)
    )
    assert "transpose" not in kept and "neg" in kept


def test_a_range_without_a_known_end_is_not_tried():
    store = ConstantStore()
    text = """
graph g() {
  symbol n: 0..HIGH from node
  %a: i64[] = @a
  %b: i64[] = @b
  %c: i64[] = @c
  %y: i64[n] = range(%a, %b, %c) {symbols=["n"]}
  return %y
}"""
    numbers = {"a": np.int64(0), "b": np.int64(1 << 60), "c": np.int64(1)}
    g = graph(text.replace("HIGH", ""), store, **numbers)
    assert fold_constants(g, store) == g
    numbers["b"] = np.int64(3)
    small = fold(graph(text.replace("HIGH", "9"), store, **numbers), store)
    expect(small, "graph g() {\n%y: i64[3] = @y\nreturn %y\n}", store, y=np.arange(3))


def test_what_fails_is_left_to_fail_when_run():
    store = ConstantStore()
    g = graph(
        """
graph g() {
  %a: i64[1] = @a
  %b: i64[1] = @b
  %y: i64[1] = div(%a, %b)
  return %y
}""",
        store,
        a=np.array([1]),
        b=np.array([0]),
    )
    assert fold_constants(g, store) == g


def test_symbolic_sizes_are_not_folded():
    store = ConstantStore()
    text = """
graph g(%x: f32[n]) {
  symbol n: 1..
  %one: f32[] = @one
  %y: f32[n] = fill(%one) {shape=[n]}
  %z: f32[n] = add(%x, %y)
  return %z
}"""
    g = graph(text, store, one=np.float32(1))
    assert fold(g, store) == g


def test_sub_graphs_fold_but_keep_the_sizes_known_outside():
    store = ConstantStore()
    branch = """(%x: f32[4]) {
    symbol NAME: 0..9 from node
    %s: i64[1] = @s
    %t: i64[1] = bind(%s) {symbols=["NAME"]}
    %u: i64[1] = add(%t, %t)
    %one: f32[] = @one
    %y: f32[NAME] = fill(%one) {shape=[NAME]}
    return %y, %u
  }"""
    text = f"""
graph g(%c: bool[], %x: f32[4]) {{
  symbol m: 0.. from node
  %y: f32[m], %u: i64[1] = if(%c, %x) {{else_branch=graph e{branch.replace("NAME", "p")},
    symbols=["m"], then_branch=graph t{branch.replace("NAME", "q")}}}
  return %y, %u
}}"""
    g = graph(text, store, s=np.array([2]), one=np.float32(1))
    after = fold(g, store)
    assert show(after).count("bind") == 2
    assert "fill" in show(after)


def chain(op: str, count: int) -> str:
    lines = [f"  %v{i + 1}: f32[1024] = {op}(%v{i})" for i in range(count)]
    body = "\n".join(["  %v0: f32[1024] = @a", *lines])
    return f"graph g() {{\n{body}\n  return %v{count}\n}}"


def test_all_results_together_are_bounded(monkeypatch):
    store = ConstantStore()
    numbers = np.arange(1024, dtype=np.float32)
    g = graph(chain("sin", 10), store, a=numbers)
    monkeypatch.setattr("ingot.passes.fold_constants.TOTAL_BYTES", 0)
    after = fold_constants(g, store)  # as much as the constants took before: one result
    assert show(after).count("sin(") == 9


def test_slow_references_compute_little():
    """A pool's reference loops over every tap of every window."""
    store = ConstantStore()
    text = """
graph g() {
  %a: f32[1, 1, 64, 64] = @a
  %y: f32[1, 1, 33, 33] = avg_pool(%a) {kernel=[32, 32], strides=[1, 1]}
  %z: f32[1, 1, 32, 32] = avg_pool(%a) {kernel=[2, 2], strides=[2, 2]}
  return %y, %z
}"""
    after = show(fold_constants(graph(text, store, a=np.ones((1, 1, 64, 64), np.float32)), store))
    assert "kernel=[32, 32]" in after and "kernel=[2, 2]" not in after


def test_the_knob_says_how_much_the_pipeline_folds():
    sizes = {}
    for limit in (0, 64 << 20):
        with options.override(fold_limit_bytes=limit):
            session = api.make_session()
            made = pipeline.run_stages(_sum_of_constants(), session, stop_after="fold_constants")
            sizes[limit] = [node.op for node in made.nodes].count("add")
    assert sizes == {0: 2, 64 << 20: 1}


def _sum_of_constants() -> onnx.ModelProto:
    """x + (a + b): the inner sum is a constant of 400 bytes."""
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [100]) for n in ("x", "y")]
    tensors = [numpy_helper.from_array(np.ones(100, np.float32), n) for n in ("a", "b")]
    nodes = [helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Add", ["x", "c"], ["y"])]
    graph = helper.make_graph(nodes, "sum", ports[:1], ports[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def grown_table(reader: str, store: ConstantStore) -> Graph:
    """A table of 300 KB, computed from 2 KB of constants, and its reader."""
    text = f"""
graph g(%x: f32[4, 256], %z: f32[256, 300]) {{
  %a: f32[256, 1] = @a
  %b: f32[1, 300] = @b
  %s: f32[256, 300] = add(%a, %b)
  %w: f32[256, 300] = sin(%s)
  {reader}
  return %y
}}"""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((256, 1), (1, 300)))
    return graph(text, store, a=a, b=b)


def test_weights_computed_from_small_constants_are_folded():
    """They would be computed, and packed, in every call."""
    store = ConstantStore()
    g = grown_table("%y: f32[4, 300] = matmul(%x, %w)", store)
    assert [n.op for n in fold(g, store).nodes] == ["constant", "matmul"]


def test_other_values_that_grow_are_left_to_be_fused():
    store = ConstantStore()
    g = grown_table("%y: f32[256, 300] = mul(%w, %z)", store)
    assert [n.op for n in fold(g, store).nodes if n.op != "constant"] == ["add", "sin", "mul"]

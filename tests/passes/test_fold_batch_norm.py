"""fold_batch_norm: scales and shifts move into the weights, with nearly equal outputs."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.graph.ir import Graph
from ingot.graph.store import ConstantStore
from ingot.graph.text import show
from ingot.passes.fold_batch_norm import fold_batch_norm
from ingot.passes.remove_dead_code import remove_dead_code
from tests.graph.graphs import agree, expect, graph

rng = np.random.default_rng(7)


def array(*shape: int) -> np.ndarray:
    return rng.uniform(0.5, 1.5, shape).astype(np.float32)


def fold(g: Graph, store: ConstantStore, rtol: float = 1e-5) -> Graph:
    after = remove_dead_code(fold_batch_norm(g, store), store)
    agree(g, after, store, rtol)
    again = remove_dead_code(fold_batch_norm(after, store), store)
    assert again == after
    return after


STATS = """
  %s: f32[4] = @s
  %t: f32[4] = @t
  %m: f32[4] = @m
  %v: f32[4] = @v
"""
NORM = "batch_norm(%c, %s, %t, %m, %v) {epsilon=1e-05}"
CONV = "{dilations=[1, 1], group=1, pads=[0, 0, 0, 0], strides=[1, 1]}"


def stats() -> dict[str, np.ndarray]:
    return {name: array(4) for name in "stmv"}


@pytest.mark.parametrize("bias", ["", ", %b"])
def test_batch_norm_goes_into_a_convolution(bias):
    store, arrays = ConstantStore(), {**stats(), "w": array(4, 3, 2, 2), "b": array(4)}
    text = f"""
graph g(%x: f32[n, 3, 5, 5]) {{
  symbol n: 1..
  %w: f32[4, 3, 2, 2] = @w
  %b: f32[4] = @b {STATS}
  %c: f32[n, 4, 4, 4] = conv(%x, %w{bias}) {CONV}  # conv1
  %y: f32[n, 4, 4, 4] = {NORM}  # bn1
  %z: f32[n, 4, 4, 4] = relu(%y)
  return %z
}}"""
    got = fold(graph(text, store, **arrays), store)
    factor = arrays["s"].astype(np.float64) / np.sqrt(arrays["v"].astype(np.float64) + 1e-5)
    shift = (arrays["b"] if bias else 0) - arrays["m"].astype(np.float64)
    wanted = f"""
graph g(%x: f32[n, 3, 5, 5]) {{
  symbol n: 1..
  %c.1: f32[4] = @b
  %c.2: f32[4, 3, 2, 2] = @w
  %y: f32[n, 4, 4, 4] = conv(%x, %c.2, %c.1) {CONV}  # bn1
  %z: f32[n, 4, 4, 4] = relu(%y)
  return %z
}}"""
    new = {
        "w": (arrays["w"].astype(np.float64) * factor.reshape(4, 1, 1, 1)).astype(np.float32),
        "b": (shift * factor + arrays["t"]).astype(np.float32),
    }
    assert show(got).count(" = @") == 2
    nodes = [line.split("@")[0] for line in show(got).splitlines()]
    made = graph(wanted, store, **new)
    assert nodes == [line.split("@")[0] for line in show(made).splitlines()]
    for mine, theirs in zip(got.nodes[:2], made.nodes[:2]):
        a, b = store.get(mine.attr("value")), store.get(theirs.attr("value"))
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("group", [1, 2])
def test_and_into_a_transposed_convolution(group):
    store, arrays = ConstantStore(), {**stats(), "w": array(6, 4 // group, 2, 2)}
    text = f"""
graph g(%x: f32[2, 6, 3, 3]) {{
  %w: f32[6, {4 // group}, 2, 2] = @w {STATS}
  %c: f32[2, 4, 4, 4] = conv_transpose(%x, %w) {{dilations=[1, 1], group={group},
    output_padding=[0, 0], pads=[0, 0, 0, 0], strides=[1, 1]}}
  %y: f32[2, 4, 4, 4] = {NORM}
  return %y
}}"""
    got = fold(graph(text, store, **arrays), store)
    assert "batch_norm" not in show(got)


def test_mul_and_add_of_per_channel_constants():
    store = ConstantStore()
    arrays = {"w": array(4, 3, 2, 2), "s": array(4, 1, 1), "t": array(1, 4, 1, 1), "k": array()}
    text = f"""
graph g(%x: f32[1, 3, 5, 5]) {{
  %w: f32[4, 3, 2, 2] = @w
  %s: f32[4, 1, 1] = @s
  %t: f32[1, 4, 1, 1] = @t
  %k: f32[] = @k
  %c: f32[1, 4, 4, 4] = conv(%x, %w) {CONV}
  %d: f32[1, 4, 4, 4] = mul(%s, %c)
  %e: f32[1, 4, 4, 4] = add(%d, %t)
  %y: f32[1, 4, 4, 4] = mul(%e, %k)
  return %y
}}"""
    got = show(fold(graph(text, store, **arrays), store))
    assert "mul" not in got and "add" not in got


def test_into_a_matmul_and_its_bias():
    store = ConstantStore()
    arrays = {"w": array(5, 4), "b": array(4), **stats()}
    text = f"""
graph g(%x: f32[n, 5]) {{
  symbol n: 1..
  %w: f32[5, 4] = @w
  %b: f32[4] = @b {STATS}
  %p: f32[n, 4] = matmul(%x, %w)
  %c: f32[n, 4] = add(%b, %p)
  %y: f32[n, 4] = {NORM}
  return %y
}}"""
    got = fold(graph(text, store, **arrays), store)
    assert [node.op for node in got.nodes] == ["constant", "constant", "matmul", "add"]


def test_a_scale_alone_needs_no_add():
    store = ConstantStore()
    text = """
graph g(%x: f32[2, 5]) {
  %w: f32[5, 4] = @w
  %k: f32[] = @k
  %p: f32[2, 4] = matmul(%x, %w)
  %y: f32[2, 4] = mul(%p, %k)
  return %y
}"""
    got = fold(graph(text, store, w=array(5, 4), k=np.float32(4)), store)
    assert [node.op for node in got.nodes] == ["constant", "matmul"]


def refuse(text: str, **arrays: np.ndarray) -> None:
    store = ConstantStore()
    g = graph(text, store, **arrays)
    after = remove_dead_code(fold_batch_norm(g, store), store)
    expect(after, text, store, **arrays)


TEXT = f"""
graph g(%x: f32[1, 3, 5, 5], %q: f32[4]) {{
  %w: f32[4, 3, 2, 2] = @w
  %s: f32[4] = @s
  %t: f32[4] = @t
  %m: f32[4] = @m
  %v: f32[4] = @v
  %c: f32[1, 4, 4, 4] = conv(%x, %w) {CONV}
  %y: f32[1, 4, 4, 4] = {NORM}
  return %y
}}"""


def test_what_must_stay_stays():
    arrays = {**stats(), "w": array(4, 3, 2, 2)}
    refuse(TEXT.replace("return %y", "return %y, %c"), **arrays)  # the convolution is seen
    twice = "%z: f32[1, 4, 4, 4] = exp(%c)\n  return %y, %z"
    refuse(TEXT.replace("return %y", twice), **arrays)
    dynamic = TEXT.replace("%s, %t, %m", "%q, %t, %m").replace("  %s: f32[4] = @s\n", "")
    refuse(dynamic, **arrays)
    arrays["v"] = np.full(4, -1, np.float32)  # the statistics give NaN: leave them visible
    refuse(TEXT, **arrays)


def test_a_constant_along_another_axis_stays():
    text = f"""
graph g(%x: f32[1, 3, 5, 5]) {{
  %w: f32[4, 3, 2, 2] = @w
  %s: f32[4] = @s
  %c: f32[1, 4, 4, 4] = conv(%x, %w) {CONV}
  %y: f32[1, 4, 4, 4] = mul(%c, %s)
  return %y
}}"""
    refuse(text, w=array(4, 3, 2, 2), s=array(4))


def test_scales_that_do_not_fit_the_weights_type_stay():
    text = """
graph g(%x: f16[2, 5]) {
  %w: f16[5, 4] = @w
  %k: f16[] = @k
  %p: f16[2, 4] = matmul(%x, %w)
  %y: f16[2, 4] = mul(%p, %k)
  return %y
}"""
    refuse(text, w=np.full((5, 4), 300, np.float16), k=np.float16(300))

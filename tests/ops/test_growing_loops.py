"""Loops whose carried tensors change their size, against ONNX Runtime, run in every way."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.frontends.onnx.walker import import_model
from ingot.graph.store import ConstantStore
from ingot.support.errors import IngotError
from tests.ops.every_way import EveryWay, model_of
from tests.refusal import refused

RNG = np.random.default_rng(18)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


GREEDY = """
m (int64 trips, int64[1, s] start, float[7, 5] table, float[5, 7] head)
    => (int64[1, n] tokens, float[1, n, 5] cache) {
  two = Constant <value = int64[1] {2}> ()
  last = Constant <value = int64[1] {-1}> ()
  first = Gather <axis = 0> (table, start)
  stop = Constant <value = int64 {6}> ()
  yes = Constant <value = bool {1}> ()
  tokens, cache = Loop (trips, yes, start, first) <
      body = b (int64 i, bool c, int64[1, k] ids, float[1, k, 5] past) =>
        (bool more, int64[1, j] ids2, float[1, j, 5] past2) {
    axis = Constant <value = int64[1] {1}> ()
    mean = ReduceMean <axes = [1], keepdims = 0> (past)
    logits = MatMul (mean, head)
    next = ArgMax <axis = 1, keepdims = 1> (logits)
    row = Gather <axis = 0> (table, next)
    ids2 = Concat <axis = 1> (ids, next)
    past2 = Concat <axis = 1> (past, row)
    flat = ReduceMax <keepdims = 0> (next)
    same = Equal (flat, stop)
    more = Not (same)
  }>
}"""


def test_greedy_decoding_with_a_growing_cache(tmp_path):
    both = EveryWay(GREEDY)
    table, head = floats(7, 5), floats(5, 7)
    lengths = set()
    for trips, start in ((4, [[1]]), (0, [[2, 3]]), (7, [[0, 5, 1]])):
        feeds = {"trips": np.array(trips), "start": np.array(start), "table": table, "head": head}
        tokens, cache = both.check(**feeds)
        assert cache.shape[1] == tokens.shape[1]
        lengths.add(tokens.shape[1] - len(start[0]))
    assert len(lengths) > 1
    both.check_saved(tmp_path, **feeds)


def test_sizes_of_values_that_grow_alike_have_one_symbol():
    graph = import_model(model_of(GREEDY), ConstantStore())
    loop = next(n for n in graph.nodes if n.op == "loop")
    assert len(loop.attr("growing")) == 1
    assert loop.outputs[0].shape[1] == loop.outputs[1].shape[1]


def test_a_tensor_that_starts_empty_and_doubles():
    both = EveryWay("""
    m (int64 trips, float[2, 3] x) => (float[n, 3] y, int64[1] size) {
      none = Constant <value = int64[2] {0, 3}> ()
      zero = Constant <value = float {0.0}> ()
      empty = Expand (zero, none)
      y = Loop (trips, , empty) <body = b (int64 i, bool c, float[p, 3] h) =>
          (bool c2, float[q, 3] h2) {
        c2 = Identity (c)
        double = Concat <axis = 0> (h, h)
        h2 = Concat <axis = 0> (double, x)
      }>
      shape = Shape (y)
      zeroth = Constant <value = int64[1] {0}> ()
      size = Gather <axis = 0> (shape, zeroth)
    }""")
    for trips in (0, 1, 5):
        both.check(trips=np.array(trips), x=floats(2, 3))


def test_a_tensor_that_shrinks_until_it_is_short():
    both = EveryWay("""
    m (float[n] x) => (float[k] y) {
      yes = Constant <value = bool {1}> ()
      y = Loop (, yes, x) <body = b (int64 i, bool c, float[p] h) => (bool c2, float[q] h2) {
        one = Constant <value = int64[1] {1}> ()
        end = Constant <value = int64[1] {9223372036854775807}> ()
        h2 = Slice (h, one, end)
        size = Size (h2)
        limit = Constant <value = int64 {3}> ()
        c2 = Greater (size, limit)
      }>
    }""")
    for size in (9, 3, 1):
        both.check(x=floats(size))


def test_a_size_that_data_decides():
    both = EveryWay("""
    m (int64 trips, float[n] x) => (float[k] y) {
      y = Loop (trips, , x) <body = b (int64 i, bool c, float[p] h) => (bool c2, float[q] h2) {
        c2 = Identity (c)
        zero = Constant <value = float {0.0}> ()
        keep = Greater (h, zero)
        kept = Compress <axis = 0> (h, keep)
        step = Constant <value = float {0.6}> ()
        h2 = Sub (kept, step)
      }>
    }""")
    both.check(trips=np.array(3), x=np.linspace(-1, 2, 13, dtype=np.float32))
    both.check(trips=np.array(9), x=np.linspace(-1, 2, 4, dtype=np.float32))


def test_two_values_that_change_places():
    both = EveryWay("""
    m (int64 trips, float[2] x, float[3] y) => (float[p] a, float[q] b) {
      a, b = Loop (trips, , x, y) <body = g (int64 i, bool c, float[s] h, float[t] k) =>
          (bool c2, float[t] h2, float[s] k2) {
        c2 = Identity (c)
        h2 = Concat <axis = 0> (k, x)
        k2 = Identity (h)
      }>
    }""")
    for trips in (0, 1, 2, 5):
        both.check(trips=np.array(trips), x=floats(2), y=floats(3))


def test_nested_loops_and_branches():
    both = EveryWay("""
    m (int64 trips, float[1, 2] x) => (float[n, 2] y, float[trips, 2] sums) {
      y, sums = Loop (trips, , x) <body = b (int64 i, bool c, float[p, 2] h) =>
          (bool c2, float[q, 2] h2, float[2] total) {
        c2 = Identity (c)
        grown = Loop (i, , h) <body = inner (int64 j, bool d, float[r, 2] k) =>
            (bool d2, float[s, 2] k2) {
          d2 = Identity (d)
          more = Add (x, x)
          k2 = Concat <axis = 0> (k, more)
        }>
        two = Constant <value = int64 {2}> ()
        rest = Mod (i, two)
        odd = Cast <to = 9> (rest)
        h2 = If (odd) <
          then_branch = t () => (float[u, 2] a) { a = Concat <axis = 0> (grown, x, x) },
          else_branch = e () => (float[w, 2] z) { z = Neg (grown) }
        >
        axes = Constant <value = int64[1] {0}> ()
        total = ReduceSum <keepdims = 0> (h2, axes)
      }>
    }""")
    for trips in (0, 1, 5):
        both.check(trips=np.array(trips), x=floats(1, 2))


@pytest.mark.long
def test_growth_on_an_inner_axis_with_a_dynamic_batch():
    both = EveryWay("""
    m (int64 trips, float[b, 2, t] x) => (float[b, 2, n] y) {
      y = Loop (trips, , x) <body = g (int64 i, bool c, float[p, 2, q] h) =>
          (bool c2, float[p, 2, r] h2) {
        c2 = Identity (c)
        wide = Exp (x)
        h2 = Concat <axis = 2> (h, wide)
      }>
    }""")
    for batch, size, trips in ((1, 1, 3), (3, 4, 2)):
        both.check(trips=np.array(trips), x=floats(batch, 2, size))
    both.check_compiled(trips=np.array(40), x=floats(2, 2, 70))


def test_attention_over_a_growing_cache():
    both = EveryWay("""
    m (int64 trips, float[b, 1, 8] x, float[8, 8] wk, float[8, 8] wv) =>
        (float[b, 1, 8] y, float[b, n, 8] keys) {
      zero = Constant <value = float {0.0}> ()
      shape = Shape (x)
      one = Constant <value = int64[1] {1}> ()
      first = Constant <value = int64[1] {0}> ()
      batch = Gather <axis = 0> (shape, first)
      eight = Constant <value = int64[1] {8}> ()
      empty = Concat <axis = 0> (batch, first, eight)
      none = Expand (zero, empty)
      y, keys, values = Loop (trips, , x, none, none) <
          body = g (int64 i, bool c, float[b, 1, 8] q, float[b, s, 8] k, float[b, t, 8] v) =>
            (bool c2, float[b, 1, 8] q2, float[b, s2, 8] k2, float[b, t2, 8] v2) {
        c2 = Identity (c)
        nk = MatMul (q, wk)
        nv = MatMul (q, wv)
        k2 = Concat <axis = 1> (k, nk)
        v2 = Concat <axis = 1> (v, nv)
        kt = Transpose <perm = [0, 2, 1]> (k2)
        scores = MatMul (q, kt)
        p = Softmax <axis = -1> (scores)
        mixed = MatMul (p, v2)
        sum = Add (q, mixed)
        q2 = Tanh (sum)
      }>
    }""")
    wk, wv = floats(8, 8) / 3, floats(8, 8) / 3
    for batch, trips in ((1, 3), (3, 9)):
        both.check(trips=np.array(trips), x=floats(batch, 1, 8), wk=wk, wv=wv)
    both.check_compiled(trips=np.array(40), x=floats(2, 1, 8), wk=wk, wv=wv)


def test_rows_of_a_size_that_only_an_iteration_knows():
    both = EveryWay("""
    m (int64 trips, int64[1] width, float[6] x) => (float[n, k] rows) {
      unused, rows = Loop (trips, , width) <body = g (int64 i, bool c, int64[1] w) =>
          (bool c2, int64[1] w2, float[q] row) {
        c2 = Identity (c)
        w2 = Identity (w)
        zero = Constant <value = int64[1] {0}> ()
        ten = Cast <to = 1> (i)
        cut = Slice (x, zero, w)
        row = Add (cut, ten)
      }>
    }""")
    for width in (1, 4):
        both.check(trips=np.array(3), width=np.array([width]), x=floats(6))


def test_a_carried_value_must_keep_its_rank():
    with refused("unsupported-op", "rank", where="(Loop)", hint=False):
        EveryWay("""
        m (int64 trips, float[2] x) => (float[n] y) {
          y = Loop (trips, , x) <body = b (int64 i, bool c, float[p] h) => (bool c2, float[q] h2) {
            c2 = Identity (c)
            axis = Constant <value = int64[1] {0}> ()
            h2 = Unsqueeze (h, axis)
          }>
        }""")


def test_sizes_are_checked_in_the_loop():
    """Two carried values whose sizes part: adding them fails when it happens, not before."""
    both = EveryWay("""
    m (int64 trips, float[2] x) => (float[n] y) {
      a, b, y = Loop (trips, , x, x, x) <
          body = g (int64 i, bool c, float[s] h, float[t] k, float[u] l) => (bool c2, float[s] h2,
            float[t] k2, float[u] l2) {
        c2 = Identity (c)
        l2 = Add (h, k)
        h2 = Concat <axis = 0> (h, x)
        k2 = Concat <axis = 0> (x, k, x)
      }>
    }""")
    both.check(trips=np.array(0), x=floats(2))
    with pytest.raises(IngotError, match="Add"):
        both.exe.run(None, {"trips": np.array(3), "x": floats(2)})

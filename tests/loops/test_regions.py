"""Boxes contain every accessed element (checked by evaluation) and are tight for affine indices."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.arith import expr as arith
from ingot.arith.bounds import Interval
from ingot.loops import ir, visit
from ingot.loops.regions import box_of, regions
from ingot.loops.script_parse import parse

i, j, io, n = (arith.Var(name) for name in ("i", "j", "io", "n"))


def numbers(box) -> list[tuple[int | None, int | None]]:
    return [(arith.as_int(offset), arith.as_int(extent)) for offset, extent in box]


def body(text: str) -> ir.Stmt:
    """The body of the outermost loop: its variable stays free."""
    made = parse(text).body
    while not isinstance(made, ir.For):
        made = visit.sub_stmts(made)[0]
    return made.body


def test_a_tile_in_terms_of_the_outer_loop():
    box = box_of([(io * 4 + i, j), (io * 4 + i + 1, j)], {"i": (0, 4), "j": (2, 8)})
    assert box == [(io * 4, 5), (2, 6)]


def test_bounds_that_mention_outer_inner_loops():
    assert box_of([(j,)], {"i": (0, 5), "j": (i, i + 3)}) == [(0, 7)]


def test_negative_and_symbolic_strides():
    env = {"n": Interval(1, None)}
    assert box_of([(10 - i,)], {"i": (0, 4)}) == [(7, 4)]
    ((offset, extent),) = box_of([(i * n + j,)], {"i": (0, 4), "j": (0, n)}, env) or []
    assert offset == 0 and extent == n * 4
    assert box_of([(i * n,)], {"i": (0, 4)}) is None  # the sign of n is unknown


def test_division_remainder_and_clamps():
    assert box_of([(i // 4, i % 4)], {"i": (0, 10)}) == [(0, 3), (0, 4)]
    clamped = arith.minimum(arith.maximum(i - 2, 0), 5)
    assert box_of([(clamped,)], {"i": (0, 10)}) == [(0, 6)]


def test_data_dependence_is_unknown():
    made = parse("def k(a: f32[4], w: i64[4]):\n    for i in serial(4):\n        a[w[i]] = 0.0")
    assert box_of([made.body.body.indices], {"i": (0, 4)}) is None
    reads, writes = regions(made.body)
    assert writes["a"].is_whole and writes["a"].box == ((0, 4),)
    assert reads["w"].box == ((0, 4),) and not reads["w"].is_whole


def test_axes_are_replaced_by_their_bindings():
    inside = body("""
def k(a: f32[34], b: f32[32]):
    for io in serial(8):
        for ii in serial(4):
            with block("b", spatial=(axis(io * 4 + ii, 32),)) as (v,):
                where(a[v] < 0.0)
                b[v] = a[v] + a[v + 2]
""")
    reads, writes = regions(inside, {"io": Interval(0, 7)})
    assert writes["b"].box == ((io * 4, 4),)
    assert reads["a"].box == ((io * 4, 6),)


def test_own_buffers_are_left_out():
    inside = body("""
def k(a: f32[8]):
    for io in serial(8):
        t = alloc(f32[4])
        t[0] = a[io]
        a[io] = t[0]
""")
    reads, writes = regions(inside)
    assert set(reads) == set(writes) == {"a"}
    assert reads["a"].box == ((io, 1),)


def test_vectors_cover_their_lanes():
    inside = body("""
def k(a: f32[64], m: f32[4, 8]):
    for io in serial(4):
        a[io * 16] = load(a[io * 16 + 8], 4, stride=2)
        m[io, 4] = load(m[io, 0], 4)
        m[io, 6] = load(m[io, 7], 4)
""")
    reads, writes = regions(inside, {"io": Interval(0, 3)})
    assert reads["a"].box == ((io * 16 + 8, 7),)
    assert writes["a"].box == ((io * 16, 4),)
    assert reads["m"].is_whole and writes["m"].is_whole  # the lanes may cross the end of a row


def test_boxes_of_instructions_and_copies():
    inside = body("""
def k(a: f32[16], s: f32[16], o: f32[4]):
    @instruction
    def total(p: f32[4], r: f32[()]):
        for u in serial(4):
            r[()] += p[u]
    for io in serial(4):
        copy_async(s[io * 4:io * 4 + 4], a[0:8], "t")
        wait("t")
        call(total, s[io * 4:io * 4 + 4], o[io:io + 1])
""")
    reads, writes = regions(inside)
    assert reads["a"].box == ((0, 8),)
    assert reads["s"].box == writes["s"].box == ((io * 4, 4),)
    assert reads["o"].box == writes["o"].box == ((io, 1),)


# --- soundness: no index is outside the box ---------------------------------------

INNER = {"i": (1, 5), "j": (0, 3)}


def terms() -> st.SearchStrategy[arith.Expr]:
    leaves = st.one_of(
        st.integers(-4, 6).map(arith.Const), st.sampled_from(["i", "j", "o"]).map(arith.Var)
    )

    def grow(inner):
        plain = st.sampled_from([arith.add, arith.sub, arith.mul, arith.minimum, arith.maximum])
        both = st.builds(lambda make, a, b: make(a, b), plain, inner, inner)
        by = st.sampled_from([arith.floordiv, arith.mod])
        divided = st.builds(
            lambda make, a, c: make(a, arith.Const(c)), by, inner, st.integers(1, 5)
        )
        return st.one_of(both, divided)

    return st.recursive(leaves, grow, max_leaves=6)


@settings(max_examples=120, deadline=None)
@given(terms(), terms())
def test_boxes_contain_every_index(a, b):
    box = box_of([(a,), (b,)], INNER, {"o": Interval(0, 3)})
    if box is None:
        return
    ((offset, extent),) = box
    for o in range(4):
        low = arith.evaluate(offset, {"o": o})
        high = low + arith.evaluate(extent, {"o": o})
        for x, y in itertools.product(range(1, 5), range(3)):
            for e in (a, b):
                assert low <= arith.evaluate(e, {"i": x, "j": y, "o": o}) < high


@pytest.mark.parametrize("index", [i * 3 + j, i - j, j // 2 + i], ids=str)
def test_affine_boxes_are_tight(index):
    ((offset, extent),) = numbers(box_of([(index,)], INNER) or [])
    points = [arith.evaluate(index, {"i": x, "j": y}) for x in range(1, 5) for y in range(3)]
    assert (offset, extent) == (min(points), max(points) - min(points) + 1)

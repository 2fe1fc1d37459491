"""Producers and consumers, and loop-carried dependences."""

from __future__ import annotations

import pytest

from ingot.loops import ir, visit
from ingot.loops.dependences import (
    carried,
    consumers,
    may_reorder,
    producers,
    readers,
    top_blocks,
    writers,
)
from ingot.loops.script_parse import parse
from tests.loops import kernels
from tests.refusal import is_told

CHAIN = """
def k(a: f32[8], d: f32[8]):
    b = alloc(f32[8])
    c = alloc(f32[8])
    for i in serial(8):
        with block("b", spatial=(i,)) as (v1,):
            b[v1] = a[v1]
    for i2 in serial(8):
        with block("c", spatial=(i2,)) as (v2,):
            for u in serial(1):
                with block("inner", spatial=(u,), opaque=(axis(v2, 8),)) as (v4, v5):
                    c[v5] = a[v5]
    for i3 in serial(8):
        with block("d", spatial=(i3,)) as (v3,):
            d[v3] = b[v3] + c[v3]
"""


def names(blocks: list[ir.Block]) -> list[str]:
    return [block.name for block in blocks]


def test_producers_and_consumers():
    root = parse(CHAIN).body
    b, c, d = top_blocks(root)
    assert names([b, c, d]) == ["b", "c", "d"]
    assert producers(root, d) == [b, c] and producers(root, c) == []
    assert consumers(root, b) == [d] and consumers(root, d) == []
    assert names(writers(root, "c")) == ["c"] and names(readers(root, "a")) == ["b", "c"]


def loops(text: str) -> tuple[dict[str, ir.For], ir.Stmt]:
    root = parse(f"def k(a: f32[64], m: f32[8, 8], c: f32[4, 4, 4], w: i64[64]):\n{text}").body
    found = [s for s in visit.walk_stmts(root) if isinstance(s, ir.For)]
    return {s.var: s for s in found}, root


# statements inside `for x in serial(8)`; a second line is inside `for y in serial(4)` as well
INDEPENDENT = {
    "own element": ("a[x] = a[x] + 1.0", ""),
    "own row": ("", "m[x, y] = m[x, 7 - y]"),
    "own tile": ("", "a[x * 4 + y] = 0.0"),
    "own vector": ("a[x * 4] = load(a[x * 4], 4)", ""),
    "fused": ("m[x // 4, x % 4] = 0.0", ""),
    "fused twice": ("m[x // 4, (x // 2) % 2 * 2 + x % 2] = a[x]", ""),
    "three digits": ("c[x // 4, x // 2 % 2, x % 2] = a[x]", ""),
    "reads only": ("m[x, 0] = a[0]", ""),
    "backwards": ("a[63 - x] = 1.0", ""),
}
DEPENDENT = {
    "neighbour": ("a[x] = a[x + 1]", ""),
    "same element": ("a[0] = 1.0", ""),
    "overlapping tiles": ("", "a[x * 3 + y] = 0.0"),
    "overlapping vectors": ("a[x * 3] = load(a[x * 3], 4)", ""),
    "high digit": ("m[x // 4, 0] = 0.0", ""),
    "low digit": ("m[0, x % 4] = 0.0", ""),
    "data": ("a[w[x]] = 0.0", ""),
    "diagonal": ("", "a[x + y] = 0.0"),
}


def nest(case: tuple[str, str]) -> tuple[ir.For, ir.Stmt]:
    outer, inner = (line or "pass" for line in case)
    lines = ["for x in serial(8):", f"    {outer}", "    for y in serial(4):", f"        {inner}"]
    found, root = loops("\n".join(f"    {line}" for line in lines))
    return found["x"], root


@pytest.mark.parametrize("case", INDEPENDENT)
def test_independent(case):
    x, root = nest(INDEPENDENT[case])
    assert carried(x, root) == []
    assert may_reorder(x, root) is None


@pytest.mark.parametrize("case", DEPENDENT)
def test_dependent(case):
    x, root = nest(DEPENDENT[case])
    (only,) = carried(x, root)
    assert not only.is_reduction
    assert is_told(only.buffer, may_reorder(x, root) or "")


def test_a_declared_reduction_may_be_reordered():
    root = kernels.matmul().body
    k = next(s for s in visit.walk_stmts(root) if isinstance(s, ir.For) and s.var.startswith("k"))
    (only,) = carried(k, root)
    assert only.is_reduction and only.buffer == "y"
    assert may_reorder(k, root) is None
    outer = next(s for s in visit.walk_stmts(root) if isinstance(s, ir.For))
    assert carried(outer, root) == []


def test_ordered_axes_are_carried():
    root = kernels.nested_blocks().body
    j = next(s for s in visit.walk_stmts(root) if isinstance(s, ir.For) and s.var == "j")
    assert all(is_told(fact, may_reorder(j, root) or "") for fact in ("vt", "scan", "ordered"))


def test_thread_scratch_written_first_is_private():
    text = """
    with alloc(f32[4], "SCOPE") as t:
        for x in serial(16):
            for y in serial(4):
                t[y] = a[x * 4 + y]
            for z in serial(4):
                a[x * 4 + z] = t[3 - z]
"""
    found, root = loops(text.replace("SCOPE", ir.THREAD))
    assert carried(found["x"], root) == []
    found, root = loops(text.replace("SCOPE", ir.GLOBAL))
    assert [c.buffer for c in carried(found["x"], root)] == ["t"]
    late = text.replace("t[y] = a[x * 4 + y]", "t[y] += a[x * 4 + y]")
    found, root = loops(late.replace("SCOPE", ir.THREAD))
    assert [c.buffer for c in carried(found["x"], root)] == ["t"]

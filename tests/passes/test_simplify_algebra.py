"""simplify_algebra: every rule has a case where it holds, and the ones that must not be."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.graph.interp import run
from ingot.graph.ir import Graph
from ingot.graph.store import ConstantStore
from ingot.graph.text import show
from ingot.passes.remove_dead_code import remove_dead_code
from ingot.passes.simplify_algebra import RULES, simplify_algebra
from tests.graph.graphs import agree, expect, graph

ZERO, ONE, TWO = (np.float32(v) for v in (0, 1, 2))
TRUE, FALSE = np.array(True), np.array(False)
TAPS = np.arange(1, 10, dtype=np.float32).reshape(1, 1, 3, 3)


def simplify(g: Graph, store: ConstantStore, rtol: float = 0.0) -> Graph:
    after = remove_dead_code(simplify_algebra(g, store), store)
    agree(g, after, store, rtol)
    assert simplify_algebra(after, store) == after
    return after


# rule → (type of x, lines from x to y, lines after; constants by name are those below)
CONSTANTS = {
    "zero": ZERO, "one": ONE, "two": TWO, "three": np.float32(3), "half": np.float32(0.5),
    "minus": np.float32(-1), "zeros": np.zeros((2, 3), np.float32), "izero": np.int64(0),
    "ione": np.int64(1), "true": TRUE, "false": FALSE, "trues": np.ones((2, 3), np.bool_),
    "taps": TAPS, "middle_taps": TAPS[:, :, 1:2],
    "eight": np.array([8, -0.25, 2], np.float32), "eighth": np.array([0.125, -4, 0.5], np.float32),
}  # fmt: skip
SAME = "%y: T = neg(%x)"  # y is made from x alone once the rule has held
CASES: list[tuple[str, str, str, str]] = [
    ("identity", "f32[2, 3]", "%a: T = identity(%x)\n%y: T = neg(%a)", SAME),
    ("cast_to_same", "f32[2, 3]", "%a: T = cast(%x) {to=f32}\n%y: T = neg(%a)", SAME),
    ("cast_and_back", "f16[2, 3]",
     "%a: f32[2, 3] = cast(%x) {to=f32}\n%b: T = cast(%a) {to=f16}\n%y: T = neg(%b)", SAME),
    ("add_zero", "f32[2, 3]", "%c: f32[2, 3] = @zeros\n%a: T = add(%x, %c)\n%y: T = neg(%a)", SAME),
    ("add_zero", "f32[2, 3]", "%c: f32[] = @zero\n%a: T = sub(%x, %c)\n%y: T = neg(%a)", SAME),
    ("add_zero", "i64[2, 3]", "%c: i64[] = @izero\n%a: T = xor(%x, %c)\n%y: T = neg(%a)", SAME),
    ("zero_add", "f32[2, 3]", "%c: f32[] = @zero\n%a: T = add(%c, %x)\n%y: T = neg(%a)", SAME),
    ("mul_one", "f32[2, 3]", "%c: f32[] = @one\n%a: T = div(%x, %c)\n%y: T = neg(%a)", SAME),
    ("mul_one", "i64[2, 3]", "%c: i64[] = @ione\n%a: T = div(%x, %c)\n%y: T = neg(%a)", SAME),
    ("one_mul", "f32[2, 3]", "%c: f32[] = @one\n%a: T = mul(%c, %x)\n%y: T = neg(%a)", SAME),
    ("min_or_max_with_itself", "f32[2, 3]", "%a: T = max(%x, %x)\n%y: T = neg(%a)", SAME),
    ("and_true", "bool[2, 3]", "%c: bool[] = @true\n%a: T = and(%x, %c)\n%y: T = not(%a)",
     "%y: T = not(%x)"),
    ("true_and", "bool[2, 3]", "%c: bool[2, 3] = @trues\n%a: T = and(%c, %x)\n%y: T = not(%a)",
     "%y: T = not(%x)"),
    ("involution", "f32[2, 3]", "%a: T = neg(%x)\n%b: T = neg(%a)\n%y: T = neg(%b)", SAME),
    ("idempotent", "f32[2, 3]", "%a: T = relu(%x)\n%y: T = relu(%a)", "%y: T = relu(%x)"),
    ("transpose_twice", "f32[2, 3, 4]",
     "%a: f32[4, 2, 3] = transpose(%x) {perm=[2, 0, 1]}\n"
     "%y: f32[2, 4, 3] = transpose(%a) {perm=[1, 0, 2]}",
     "%y: f32[2, 4, 3] = transpose(%x) {perm=[0, 2, 1]}"),
    ("transpose_merged", "f32[2, 3, 4, 5]",
     "%a: f32[6, 4, 5] = reshape(%x) {shape=[6, 4, 5]}\n"
     "%b: f32[6, 5, 4] = transpose(%a) {perm=[0, 2, 1]}\n"
     "%y: f32[2, 3, 5, 4] = reshape(%b) {shape=[2, 3, 5, 4]}",
     "%y: f32[2, 3, 5, 4] = transpose(%x) {perm=[0, 1, 3, 2]}"),
    ("transpose_identity", "f32[2, 3, 4]",
     "%a: f32[4, 2, 3] = transpose(%x) {perm=[2, 0, 1]}\n"
     "%b: T = transpose(%a) {perm=[1, 2, 0]}\n%y: T = neg(%b)", SAME),
    ("reshape_twice", "f32[2, 3]",
     "%a: f32[6] = reshape(%x) {shape=[6]}\n%y: f32[3, 2] = reshape(%a) {shape=[3, 2]}",
     "%y: f32[3, 2] = reshape(%x) {shape=[3, 2]}"),
    ("reshape_of_slice", "f32[2, 24, 5]",
     "%a: f32[2, 12, 5] = slice(%x) {sizes=[2, 12, 5], starts=[0, 8, 0], steps=[1, 1, 1]}\n"
     "%y: f32[2, 3, 2, 2, 5] = reshape(%a) {shape=[2, 3, 2, 2, 5]}",
     "%reshape: f32[2, 6, 2, 2, 5] = reshape(%x) {shape=[2, 6, 2, 2, 5]}\n"
     "%y: f32[2, 3, 2, 2, 5] = slice(%reshape) "
     "{sizes=[2, 3, 2, 2, 5], starts=[0, 2, 0, 0, 0], steps=[1, 1, 1, 1, 1]}"),
    ("reshape_or_expand_identity", "f32[2, 3]",
     "%a: T = expand(%x) {shape=[2, 3]}\n%b: T = reshape(%a) {shape=[2, 3]}\n%y: T = neg(%b)",
     SAME),
    ("tile_identity", "f32[2, 3]", "%a: T = tile(%x) {repeats=[1, 1]}\n%y: T = neg(%a)", SAME),
    ("pad_identity", "f32[2, 3]",
     "%a: T = pad(%x) {after=[0, 0], before=[0, 0], mode=\"edge\"}\n%y: T = neg(%a)", SAME),
    ("slice_identity", "f32[2, 3]",
     "%a: T = slice(%x) {sizes=[2, 3], starts=[0, 0], steps=[1, 1]}\n%y: T = neg(%a)", SAME),
    ("concat_of_one", "f32[2, 3]", "%a: T = concat(%x) {axis=0}\n%y: T = neg(%a)", SAME),
    ("where_constant", "f32[2, 3]",
     "%c: bool[] = @false\n%z: T = @zeros\n%a: T = where(%c, %z, %x)\n%y: T = neg(%a)", SAME),
    ("where_same", "f32[2, 3]",
     "%c: bool[2, 3] = gt(%x, %x)\n%a: T = where(%c, %x, %x)\n%y: T = neg(%a)", SAME),
    ("clip_unbounded", "f32[2, 3]", "%a: T = clip(%x, _, _)\n%y: T = neg(%a)", SAME),
    ("small_power", "f32[2, 3]", "%c: f32[] = @two\n%y: T = pow(%x, %c)", "%y: T = mul(%x, %x)"),
    ("small_power", "f32[2, 3]", "%c: f32[] = @three\n%y: T = pow(%x, %c)",
     "%mul: T = mul(%x, %x)\n%y: T = mul(%mul, %x)"),
    ("small_power", "f32[2, 3]", "%c: f32[] = @minus\n%y: T = pow(%x, %c)",
     "%y: T = reciprocal(%x)"),
    ("small_power", "f32[2, 3]",
     "%c: f32[] = @half\n%o: f32[] = @one\n%s: T = mul(%x, %x)\n%p: T = add(%s, %o)\n"
     "%y: T = pow(%p, %c)",
     "%o: f32[] = @one\n%s: T = mul(%x, %x)\n%p: T = add(%s, %o)\n%y: T = sqrt(%p)"),
    ("div_by_power_of_two", "f32[2, 3]", "%c: f32[3] = @eight\n%y: T = div(%x, %c)",
     "%c.1: f32[3] = @eighth\n%y: T = mul(%x, %c.1)"),
    ("taps_in_padding", "f32[2, 1, 1, 2]",
     "%w: f32[1, 1, 3, 3] = @taps\n%y: T = conv(%x, %w) {pads=[1, 1, 1, 1]}",
     "%c: f32[1, 1, 1, 3] = @middle_taps\n%y: T = conv(%x, %c) {pads=[0, 1, 0, 1]}"),
]  # fmt: skip


def text_of(type: str, lines: str) -> str:
    result = lines.splitlines()[-1].split(":")[1].split("=")[0].strip()
    assert result
    return f"graph g(%x: {type}) {{\n{lines}\nreturn %y\n}}".replace(": T =", f": {type} =")


@pytest.mark.parametrize("rule, type, before, after", CASES, ids=lambda v: v[:24])
def test_a_rule_and_what_it_leaves(rule, type, before, after):
    store = ConstantStore()
    g = graph(text_of(type, before), store, **CONSTANTS)
    got = simplify(g, store, rtol=3e-7 if rule == "small_power" else 0.0)
    expect(got, text_of(type, after), store, **CONSTANTS)


def test_every_rule_has_a_case():
    assert {rule.name for rule in RULES} == {case[0] for case in CASES}


UNTOUCHED = {
    "times_zero": ("f32[3]", "%c: f32[] = @zero\n%y: T = mul(%x, %c)"),
    "minus_itself": ("f32[3]", "%y: T = sub(%x, %x)"),
    "zero_that_broadcasts": ("f32[1, 3]", "%c: f32[2, 3] = @zeros\n%y: f32[2, 3] = add(%x, %c)"),
    "one_that_broadcasts": ("f32[1]", "%c: f32[2, 3] = @trues_f\n%y: f32[2, 3] = mul(%x, %c)"),
    "root_of_maybe_minus_infinity": ("f32[3]", "%c: f32[] = @half\n%y: T = pow(%x, %c)"),
    "division_by_three": ("f32[3]", "%c: f32[] = @three\n%y: T = div(%x, %c)"),
    "division_whose_inverse_is_no_number":
        ("f32[3]", "%c: f32[] = @tiny\n%y: T = div(%x, %c)"),
    "whole_number_division": ("i64[3]", "%c: i64[] = @itwo\n%y: T = div(%x, %c)"),
    "cast_that_loses": ("f32[3]",
                        "%a: f16[3] = cast(%x) {to=f16}\n%y: T = cast(%a) {to=f32}"),
    "cast_to_unsigned_and_back": ("i8[3]",
                                  "%a: u16[3] = cast(%x) {to=u16}\n%y: T = cast(%a) {to=i8}"),
    "where_that_broadcasts": ("f32[3]",
                              "%c: bool[2, 3] = @trues\n%y: f32[2, 3] = where(%c, %x, %x)"),
    "slice_backwards": ("f32[3]", "%y: T = slice(%x) {sizes=[3], starts=[2], steps=[-1]}"),
    "slice_that_begins_between":
        ("f32[2, 24]",
         "%a: f32[2, 12] = slice(%x) {sizes=[2, 12], starts=[0, 6], steps=[1, 1]}\n"
         "%y: f32[2, 3, 4] = reshape(%a) {shape=[2, 3, 4]}"),
    "slice_of_two_axes":
        ("f32[4, 24]",
         "%a: f32[2, 12] = slice(%x) {sizes=[2, 12], starts=[0, 4], steps=[1, 1]}\n"
         "%y: f32[2, 3, 4] = reshape(%a) {shape=[2, 3, 4]}"),
    "merged_axes_that_are_split_otherwise":
        ("f32[2, 3, 4, 5]",
         "%a: f32[6, 4, 5] = reshape(%x) {shape=[6, 4, 5]}\n"
         "%b: f32[6, 5, 4] = transpose(%a) {perm=[0, 2, 1]}\n"
         "%y: f32[3, 2, 5, 4] = reshape(%b) {shape=[3, 2, 5, 4]}"),
    "merged_axes_that_are_moved":
        ("f32[2, 3, 4]",
         "%a: f32[6, 4] = reshape(%x) {shape=[6, 4]}\n"
         "%b: f32[4, 6] = transpose(%a) {perm=[1, 0]}\n"
         "%y: f32[4, 2, 3] = reshape(%b) {shape=[4, 2, 3]}"),
    "axes_merged_elsewhere":
        ("f32[2, 3, 4, 5]",
         "%a: f32[2, 12, 5] = reshape(%x) {shape=[2, 12, 5]}\n"
         "%b: f32[2, 5, 12] = transpose(%a) {perm=[0, 2, 1]}\n"
         "%y: f32[2, 3, 5, 4] = reshape(%b) {shape=[2, 3, 5, 4]}"),
    "and_of_bits": ("i64[3]", "%c: i64[] = @ione\n%y: T = and(%x, %c)"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNTOUCHED)
def test_what_must_stay_stays(name):
    type, lines = UNTOUCHED[name]
    more = {
        "trues_f": np.ones((2, 3), np.float32),
        "tiny": np.float32(1e-45),
        "itwo": np.int64(2),
    }
    store = ConstantStore()
    g = graph(text_of(type, lines), store, **CONSTANTS, **more)
    assert simplify_algebra(g, store) == g


def test_infinities_and_nans_are_kept():
    store = ConstantStore()
    g = graph(
        """
graph g(%x: f32[4]) {
  %zero: f32[] = @zero
  %two: f32[] = @two
  %a: f32[4] = add(%x, %zero)
  %b: f32[4] = pow(%a, %two)
  %c: f32[4] = mul(%b, %zero)
  %d: f32[4] = sub(%a, %a)
  %e: f32[4] = add(%c, %d)
  return %b, %e
}""",
        store,
        zero=ZERO,
        two=TWO,
    )
    x = np.array([np.inf, -np.inf, np.nan, 1], np.float32)
    after = simplify(g, store)
    for a, b in zip(run(g, store, [x]), run(after, store, [x])):
        np.testing.assert_array_equal(a, b)


def test_outputs_keep_their_names():
    store = ConstantStore()
    g = graph(
        """
graph g(%x: f32[3]) {
  %a: f32[3] = identity(%x)
  %b: f32[3] = exp(%x)
  %c: f32[3] = identity(%b)
  %d: f32[3] = identity(%b)
  return %a, %c, %d, %c
}""",
        store,
    )
    wanted = """
graph g(%x: f32[3]) {
  %c: f32[3] = exp(%x)
  %a: f32[3] = identity(%x)
  %d: f32[3] = identity(%c)
  return %a, %c, %d, %c
}"""
    expect(simplify(g, store), wanted, store)


def test_symbolic_shapes_and_sub_graphs():
    store = ConstantStore()
    g = graph(
        """
graph g(%c: bool[], %x: f32[n, m]) {
  symbol n: 1..
  symbol m: 1..
  %a: f32[n * m] = reshape(%x) {shape=[n * m]}
  %b: f32[n, m] = reshape(%a) {shape=[n, m]}
  %y: f32[n, m] = if(%c, %b) {else_branch=graph e(%p: f32[n, m]) {
    %q: f32[n, m] = identity(%p)
    %r: f32[n, m] = exp(%q)
    return %r
  }, then_branch=graph t(%p: f32[n, m]) {
    return %p
  }}
  return %y
}""",
        store,
    )
    text = show(simplify(g, store))
    assert "reshape" not in text and "identity" not in text and "exp(%p)" in text

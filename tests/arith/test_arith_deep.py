"""Expressions of depth 5,000: every walk works at Python's own recursion limit."""

from __future__ import annotations

from copy import deepcopy
from functools import reduce

import pytest

from ingot.arith import expr as ir
from ingot.arith.affine import affine
from ingot.arith.bounds import Interval, bounds_of, prove
from ingot.arith.parse import parse
from ingot.arith.simplify import simplify
from ingot.runtime.plan_table import from_expr, to_expr

COUNT = 5_000
NAMES = [f"v{i}" for i in range(COUNT)]
RANGES = {name: Interval(1, 9) for name in NAMES}
VALUES = {name: i % 9 + 1 for i, name in enumerate(NAMES)}


def terms() -> list[ir.Expr]:
    return [ir.Var(name) * 3 + 1 for name in NAMES]


CHAINS = {
    "sum, left": lambda: reduce(ir.add, terms()),
    "sum, right": lambda: reduce(lambda rest, x: ir.add(x, rest), terms()),
    "difference, left": lambda: reduce(ir.sub, terms()),
    "max, left": lambda: reduce(ir.maximum, terms()),
    "max, right": lambda: reduce(lambda rest, x: ir.maximum(x, rest), terms()),
    "min, left": lambda: reduce(ir.minimum, terms()),
}


@pytest.mark.parametrize("form", CHAINS)
def test_deep_expressions(form: str):
    deep, again = CHAINS[form](), CHAINS[form]()
    value = ir.evaluate(deep, VALUES)
    assert deep == again and hash(deep) == hash(again) and deepcopy(deep) is deep
    assert ir.free_vars(deep) == set(NAMES)
    assert ir.evaluate(ir.substitute(deep, {"v0": VALUES["v0"]}), VALUES) == value
    assert to_expr(from_expr(deep)) == deep
    simple = simplify(deep, RANGES)
    assert ir.evaluate(simple, VALUES) == value and simplify(simple, RANGES) == simple
    assert bounds_of(deep, RANGES).contains(value)
    assert prove("le", deep, deep + 1, RANGES)
    assert ir.show(deep).count("v") == COUNT == repr(deep).count("v")
    affine(deep, ("v1",), RANGES)


def test_a_long_max_prints_as_one_call_and_parses_back():
    deep = CHAINS["max, left"]()
    assert ir.show(deep).count("max(") == 1
    assert parse(ir.show(deep)) == deep


@pytest.mark.parametrize("text", ["max(a, b, c)", "max(a, max(b, c))", "min(max(a, b, c), d)"])
def test_nesting_of_min_and_max_is_kept(text: str):
    assert ir.show(parse(text)) == text


def test_a_long_max_keeps_its_largest_number():
    x = reduce(ir.maximum, [ir.Var(f"v{i % 70}") * 1 for i in range(200)], ir.Const(4))
    found = simplify(ir.maximum(x, 7), RANGES)
    assert ir.evaluate(found, dict.fromkeys(NAMES, 1)) == 7
    assert ir.evaluate(found, dict.fromkeys(NAMES, 9)) == 9

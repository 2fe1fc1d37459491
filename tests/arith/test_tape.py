"""A tape has the value of its expression, for every environment."""

from __future__ import annotations

import random

import pytest

from ingot.arith import expr as arith
from ingot.arith.tape import tape

NAMES = ("n", "m", "k")


def random_expr(r: random.Random, depth: int) -> arith.Expr:
    if not depth or r.random() < 0.1:
        return arith.Var(r.choice(NAMES)) if r.random() < 0.7 else arith.Const(r.randint(-3, 9))
    kind = r.choice(list(arith.FOLD))
    left, right = random_expr(r, depth - 1), random_expr(r, depth - 1)
    if kind in (arith.FloorDiv, arith.Mod):
        right = arith.Const(r.randint(1, 7))
    return kind(left, right)  # type: ignore[call-arg]


@pytest.mark.parametrize("seed", range(40))
def test_a_tape_agrees_with_evaluate(seed: int):
    r = random.Random(seed)
    expr = random_expr(r, 6)
    for _ in range(5):
        env = {name: r.randint(0, 100) for name in NAMES}
        assert tape(expr).evaluate(env) == arith.evaluate(expr, env)


def test_a_leaf_a_long_sum_and_an_unbound_name():
    assert tape(arith.Const(7)).evaluate({}) == 7
    total: arith.Expr = arith.Const(0)
    for number in range(5000):  # deeper than Python's recursion limit
        total = arith.Add(total, arith.Mul(arith.Var("n"), arith.Const(number)))
    assert tape(total).evaluate({"n": 2}) == 4999 * 5000
    with pytest.raises(KeyError, match="n"):
        tape(arith.Var("n") + 1).evaluate({})

"""Sizes from shapes: what some expressions and their values say about the variables."""

from __future__ import annotations

from ingot.arith.expr import Const, Expr, Var
from ingot.arith.solve import solve

n, m, k = Var("n"), Var("m"), Var("k")


def test_a_variable_is_its_value_and_a_multiple_is_divided() -> None:
    assert solve([(n, 5), (m * 3 + 1, 10)]) == {"n": Const(5), "m": Const(3)}
    assert solve([(Const(4) - n, 1)]) == {"n": Const(3)}


def test_one_unknown_leads_to_the_next() -> None:
    pairs: list[tuple[Expr, int]] = [(k + m, 20), (n + m * 2, 9), (n, 3)]
    assert solve(pairs) == {"n": Const(3), "m": Const(3), "k": Const(17)}


def test_what_is_known_helps_and_stays() -> None:
    assert solve([(n + m, 9)], {"m": 2}) == {"m": Const(2), "n": Const(7)}
    assert solve([(m, 5)], {"m": 2}) == {"m": Const(2)}


def test_nothing_is_said_where_nothing_follows() -> None:
    assert solve([(n + m, 9)]) == {}
    assert solve([(n * 2, 9)]) == {}  # no whole number
    assert solve([(n * n, 9), (n // 2, 3)]) == {}  # not affine


def test_values_may_be_expressions() -> None:
    assert solve([(n + 1, k * 2 + 1)]) == {"n": k * 2}

"""Affine forms: coefficients free of the variables, and the form equals the expression."""

from __future__ import annotations

from ingot.arith import expr as ir
from ingot.arith.affine import affine, coefficient
from ingot.arith.bounds import Interval
from ingot.arith.expr import Const, Opaque, Var, free_vars

i, j, k, n = map(Var, "ijkn")


def test_known_forms():
    form = affine(n * i + 4 * j + k + 1, ["i", "j"])
    assert form is not None
    assert form.coeff == {"i": n, "j": Const(4)} and form.rest == k + 1
    assert coefficient((i + 3) * 8 + j, "i") == 8
    assert coefficient(j + n, "i") == 0
    assert coefficient(i * n + i * 3, "i") == n + 3


def test_what_is_not_affine():
    for expr in (i * i, i // 2, i % 4, ir.minimum(i, n), i * j):
        assert affine(expr, ["i", "j"]) is None
    assert coefficient(i * j, "i") == j
    assert coefficient(i // 2, "j") == 0


def test_ranges_make_forms_affine():
    expr = (4 * i + j) // 4
    assert coefficient(expr, "j") is None
    assert coefficient(expr, "j", {"j": Interval(0, 3)}) == 0


def test_opaque_leaves_are_constants():
    load = Opaque("x")
    assert coefficient(load * i + load, "i") == load


def test_forms_equal_their_expressions(fuzz, at):
    rnd, found = fuzz(41), 0
    for _ in range(1000):
        expr = rnd.expr(3)
        form = affine(expr, ("i", "j"))
        if form is None:
            continue
        found += 1
        parts = (*form.coeff.values(), form.rest)
        assert all(free_vars(part).isdisjoint({"i", "j"}) for part in parts)
        env = {name: Interval(None, None) for name in "ijkn"}
        for point in rnd.points(env, {}, 8):
            want = at(expr, point)
            assert want is None or at(form.to_expr(), point) == want
    assert found > 100

"""parse is the inverse of show."""

from __future__ import annotations

import ast

import pytest

from ingot.arith import expr as ir
from ingot.arith.expr import Const, Opaque, Var, show
from ingot.arith.parse import parse
from tests.refusal import refused


def test_round_trip(fuzz):
    rnd = fuzz(51)
    for _ in range(1000):
        expr = rnd.expr(rnd.r.randint(0, 5))
        assert parse(show(expr)) == expr


@pytest.mark.parametrize(
    "text", ["-3", "(-3) * i", "0 - i", "min(-3, i) // (j % 4)", "i - (j - k)"]
)
def test_text_comes_back_as_it_was(text):
    assert show(parse(text)) == text


def test_unary_minus_of_an_expression():
    assert parse("-(i + 1)") == ir.Sub(Const(0), Var("i") + 1)


def test_opaque_goes_to_the_callback():
    expr = Opaque("x") * 4 + Var("i")
    text = show(expr, opaque=lambda payload: f"{payload}[0]")
    assert text == "x[0] * 4 + i"
    read = parse(text, opaque=lambda tree: Opaque(ast.unparse(tree).removesuffix("[0]")))
    assert read == expr


@pytest.mark.parametrize("text", ["", "i +", "i / 2", "x[0]", "True", "1.5", "min(i)", "f(i, j)"])
def test_what_is_not_an_integer_expression(text):
    with refused("bad-text", text, hint=False):
        parse(text)

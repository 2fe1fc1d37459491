"""The rewrite engine on a term type that is not arith: operators with names, as graphs have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from ingot.support.rewrite import Op, Rule, RuleSet, Variable, op, rewrite, variables
from tests.refusal import refused


@dataclass(frozen=True)
class Call:
    name: str
    inputs: tuple[Call, ...] = ()
    attr: Any = None


class Calls:
    def head(self, term: Call) -> str:
        return term.name

    def children(self, term: Call) -> Sequence[Call]:
        return term.inputs

    def rebuild(self, term: Call, children: Sequence[Call]) -> Call:
        return Call(term.name, tuple(children), term.attr)

    def literal(self, value: Any) -> Call:
        return value if isinstance(value, Call) else Call("const", (), value)


TERMS = Calls()
x, y = Variable("x"), Variable("y")
number = Variable("number", lambda t: t.attr if t.name == "const" else None)
a, b = Call("a"), Call("b")


def call(name: str, *inputs: Call, attr: Any = None) -> Call:
    return Call(name, inputs, attr)


def const(value: int) -> Call:
    return TERMS.literal(value)


def compose(outer: Call, inner: Call, x: Call) -> Call:
    return call("transpose", x, attr=tuple(inner.attr[p] for p in outer.attr))


COMPOSE = Rule(
    "compose_transposes",
    Op("transpose", (op("transpose", x).named("inner"),), "outer"),
    compose,
)
DOUBLE_NEG = Rule("double_neg", op("neg", op("neg", x)), lambda x: x)
SAME = Rule("sub_of_same", x - x, lambda: 0)
TIMES_ZERO = Rule("times_zero", x * 0, lambda: 0)
SCALE = Rule("fold_scales", (x * number) * Variable("second", number.view),
             lambda x, number, second: call("mul", x, const(number * second)),
             when=lambda number: number > 0)  # fmt: skip


def test_rules_apply_everywhere_to_the_end():
    term = call("add", call("neg", call("neg", call("neg", call("neg", a)))), b)
    assert rewrite(term, [DOUBLE_NEG], TERMS) == call("add", a, b)


def test_repeated_variables_must_be_equal():
    assert rewrite(call("sub", a, a), [SAME], TERMS) == const(0)
    assert rewrite(call("sub", a, b), [SAME], TERMS) == call("sub", a, b)


def test_literals_match_their_value_only():
    assert rewrite(call("mul", a, const(0)), [TIMES_ZERO], TERMS) == const(0)
    assert rewrite(call("mul", a, const(1)), [TIMES_ZERO], TERMS) == call("mul", a, const(1))


def test_views_bind_values_and_when_guards():
    term = call("mul", call("mul", a, const(2)), const(3))
    assert rewrite(term, [SCALE], TERMS) == call("mul", a, const(6))
    guarded = call("mul", call("mul", a, const(-2)), const(3))
    assert rewrite(guarded, [SCALE], TERMS) == guarded


def test_named_subterms_give_attributes():
    inner = call("transpose", a, attr=(1, 2, 0))
    term = call("transpose", inner, attr=(2, 0, 1))
    assert rewrite(term, [COMPOSE], TERMS) == call("transpose", a, attr=(0, 1, 2))


def test_facts_and_term_reach_the_rule():
    rule = Rule("known", x + y, lambda term, facts: facts.get(term))
    term = call("add", a, b)
    assert rewrite(term, [rule], TERMS, facts={term: a}) == a
    assert rewrite(term, [rule], TERMS, facts={}) == term


def test_earlier_rows_win_and_heads_index():
    first = Rule("first", x + y, lambda x: x)
    second = Rule("second", x + y, lambda y: y)
    found = RuleSet([first, second, DOUBLE_NEG], TERMS).first(call("add", a, b))
    assert found == (first, a)
    assert RuleSet([first, second], TERMS).first(call("neg", a)) is None


def test_a_rule_over_any_term():
    rule = Rule("rename", x, lambda x: b if x == a else None)
    rules = RuleSet([rule, DOUBLE_NEG], TERMS)
    assert rewrite(call("neg", a), rules, TERMS) == call("neg", b)


def test_shared_terms_are_visited_once():
    seen: list[Call] = []
    spy = Rule("spy", op("leaf"), lambda term: seen.append(term))
    term = call("leaf")
    for _ in range(8):
        term = call("add", term, term)
    rewrite(term, [spy], TERMS)
    assert len(seen) == 1


def test_rules_that_never_end_are_an_error_naming_one():
    there = Rule("there", x + y, lambda x, y: call("add", y, x))
    with refused("limit", "there", hint=False):
        rewrite(call("add", a, b), [there, Rule("grow", op("neg", x), lambda x: x)], TERMS)


def test_deep_terms_do_not_exhaust_the_stack():
    class Deep:
        """Terms by number: 3 is f(2); 0 is a leaf. Deep, with cheap hashes."""

        def head(self, term: int) -> str:
            return "leaf" if term == 0 else "f"

        def children(self, term: int) -> Sequence[int]:
            return (term - 1,) if term > 0 else ()

        def rebuild(self, term: int, children: Sequence[int]) -> int:
            return children[0] + 1

        def literal(self, value: int) -> int:
            return value

    rule = Rule("drop_hundreds", op("f", x), lambda x, term: x if term % 100 == 0 else None)
    assert rewrite(5000, [rule], Deep()) == 99


def test_a_rule_that_asks_for_an_unbound_name_is_refused():
    with pytest.raises(ValueError, match=r"bad.*'z'"):
        Rule("bad", x + y, lambda z: z)


def test_variables_in_reading_order():
    assert variables(op("f", x, op("g", y).named("t"))) == ["x", "t", "y"]

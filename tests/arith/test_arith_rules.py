"""Every row of the simplifier on its own, against `evaluate`, on integers of both signs."""

from __future__ import annotations

import pytest

from ingot.arith import expr as ir
from ingot.arith import sums
from ingot.arith.expr import Const, Expr, Var
from ingot.arith.rules import HEADS, RULES, SUM_RULES, TERMS
from ingot.arith.simplify import simplifier
from ingot.support.rewrite import Op, Pattern, Rule, Variable

KINDS = {name: kind for kind, name in HEADS.items()}
ENOUGH = 40  # times a row must fire, or the test shows nothing


def dividend(rnd) -> Expr:
    """Anything, or a multiple and a small rest, which is what index arithmetic divides."""
    if rnd.r.random() < 0.6:
        return rnd.expr(rnd.r.randint(0, 3))
    rest = rnd.expr(1) % rnd.r.choice((2, 3, 4))
    return rnd.expr(1) * rnd.r.choice((2, 4, 6, -4)) + rest + rnd.r.randint(-3, 3)


def instance(pattern: Pattern, rnd, made: dict[str, Expr]) -> Expr:
    """A random term of the pattern's shape."""
    match pattern:
        case Variable(name=name, view=view):
            if name not in made:
                number = Const(rnd.r.choice((1, 2, 3, 4, 6, 8, 12, 24, -1, -2, -3, -4, -6)))
                plain = rnd.divisor() if name in ("y", "z") else dividend(rnd)
                made[name] = plain if view is None else number
            return made[name]
        case Op(head=head, children=children):
            return KINDS[head](*(instance(child, rnd, made) for child in children))
    raise AssertionError(pattern)


# rules that look into sums, where terms of their pattern alone seldom fit: (kind, its dual)
CLAMPED = {"min_of_clamped": (ir.Min, ir.Max), "max_of_clamped": (ir.Max, ir.Min)}


def clamped(kind: type[ir.Binary], dual: type[ir.Binary], rnd) -> Expr:
    """max(a, min(x, c) - min(y, c)), with a of either sign"""
    x, y, c = (dividend(rnd) for _ in range(3))
    return kind(Const(rnd.r.randint(-2, 2)), dual(x, c) - dual(y, c))


def fire(rule: Rule, rnd, at, tries: int = 4000) -> int:
    """How often the rule fired; every result is compared at points in the ranges."""
    fired = 0
    for _ in range(tries):
        env, limits = rnd.env(), rnd.limits()
        name = rule.name
        term = clamped(*CLAMPED[name], rnd) if name in CLAMPED else instance(rule.pattern, rnd, {})
        facts = simplifier(env, limits)
        if rnd.r.random() < 0.7 and isinstance(term, ir.Binary):
            term = type(term)(facts.simplify(term.a), facts.simplify(term.b))
        if isinstance(term, ir.FloorDiv | ir.Mod) and term.b == 0:
            continue
        built = rule.apply(term, TERMS, facts)
        if built is None:
            continue
        fired += 1
        for point in rnd.points(env, limits, 12):
            want = at(term, point)
            if want is not None:
                assert at(built, point) == want, f"{rule.name}: {term} -> {built} at {point}"
        if fired >= 3 * ENOUGH:
            break
    return fired


@pytest.mark.parametrize("rule", RULES.rules, ids=lambda rule: rule.name)
def test_rule_is_exact(rule, fuzz, at):
    assert fire(rule, fuzz(5), at) >= ENOUGH


def test_the_fuzzer_finds_wrong_rules(fuzz, at):
    x, c, d = Variable("x"), Variable("c", ir.as_int), Variable("d", ir.as_int)
    wrong = [
        Rule("no_divisibility", (x % c) % d, lambda x, d: x % d),
        Rule("any_sign", (x // c) // d, lambda x, c, d: x // (c * d)),
        Rule("truncates", x // d, lambda x, d: -(-x // d)),
    ]
    for rule in wrong:
        with pytest.raises(AssertionError, match=rule.name):
            fire(rule, fuzz(5), at)


def a_sum(rnd) -> Expr:
    """Quotients and remainders of one dividend, with weights that often fit together."""
    r = rnd.r
    a = rnd.expr(1)
    b = rnd.divisor() if r.random() < 0.4 else Const(r.choice((2, 3, 4, 8)))
    d = Const(r.choice((2, 3, 5)))
    k, m = r.choice((1, 1, 2, -1)), r.choice((Const(1), Const(1), Var("k")))
    parts = [a, a // b * b, a % b, a // b % d * b, a // b // d * (b * d), Var("j")]
    if r.random() < 0.3:  # a ceiling, and quotients that may cancel it
        parts = [a // d, (r.choice((-1, 0, 1, 2)) - a) // d, Var("j")]
    total: Expr = Const(r.randint(-3, 3))
    for part in r.sample(parts, r.randint(2, min(4, len(parts)))):
        total = total + part * r.choice((k, k, -k, 1)) * m
    return total


@pytest.mark.parametrize("rule", SUM_RULES, ids=lambda rule: rule.name)
def test_sum_rule_is_exact(rule, fuzz, at):
    rnd, fired = fuzz(9), 0
    for _ in range(6000):
        env, limits = rnd.env(), rnd.limits()
        facts = simplifier(env, limits)
        expr = a_sum(rnd)
        total = facts._addends(expr) if isinstance(expr, ir.Add | ir.Sub) else facts.normal(expr)
        better = rule.apply(total, facts)
        if better is None:
            continue
        fired += 1
        built = sums.to_expr(better)
        for point in rnd.points(env, limits, 12):
            want = at(expr, point)
            if want is not None:
                assert at(built, point) == want, f"{rule.name}: {expr} -> {built} at {point}"
        if fired >= 3 * ENOUGH:
            break
    assert fired >= ENOUGH


def test_rule_names_are_unique():
    names = [rule.name for rule in (*RULES.rules, *SUM_RULES)]
    assert len(names) == len(set(names))

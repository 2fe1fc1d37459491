"""The simplifier's rewrite rules. In: one `//`, `%`, `min` or `max` of simplified operands.

`simplify` puts sums in canonical form, and applies `SUM_RULES` to sums and `RULES` to all other
nodes. Each rule is fuzzed on its own against `evaluate` (tests/arith/test_arith_rules.py). All are
exact over the integers with floor semantics, for nonzero divisors and the ranges in `facts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from math import gcd
from typing import Any, NamedTuple

from ingot.arith import expr as ir
from ingot.arith import sums
from ingot.arith.expr import Const, Expr, as_int
from ingot.arith.range_analysis import RangeAnalysis
from ingot.arith.sums import ONE, Product, Sum
from ingot.support.rewrite import Rule, RuleSet, Variable, op

MAX_COMPARED = 64  # operands of a min or max that are compared in pairs; heuristic

HEADS: dict[type[Expr], str] = {
    ir.Const: "const", ir.Var: "var", ir.Opaque: "opaque", ir.Add: "add", ir.Sub: "sub",
    ir.Mul: "mul", ir.FloorDiv: "floordiv", ir.Mod: "mod", ir.Min: "min", ir.Max: "max",
}  # fmt: skip


class ArithTerms:
    """The TermProtocol of integer expressions."""

    def head(self, term: Expr) -> str:
        return HEADS[type(term)]

    def children(self, term: Expr) -> Sequence[Expr]:
        return (term.a, term.b) if isinstance(term, ir.Binary) else ()

    def rebuild(self, term: Expr, children: Sequence[Expr]) -> Expr:
        return ir.BUILD[type(term)](*children)

    def literal(self, value: Any) -> Expr:
        return ir.wrap(value)


TERMS = ArithTerms()
x, y, z = Variable("x"), Variable("y"), Variable("z")
c, d, k = Variable("c", as_int), Variable("d", as_int), Variable("k", as_int)


def known_quotient(x: Expr, y: Expr, facts: RangeAnalysis) -> int | None:
    """x // y, if the ranges allow one value only."""
    plain = facts.range(ir.FloorDiv(x, y))
    if plain.low is not None and plain.low == plain.high:
        return plain.low
    if not facts.lasts and isinstance(y, Const):
        return None
    top, divisor = facts.normal(x), facts.normal(y)
    if not facts.at_least(divisor, 1):
        return None
    if facts.at_least(top, 0) and facts.at_least(sums.plus(divisor, top, -1), 1):
        return 0
    if facts.at_least(sums.scaled(top, -1), 1) and facts.at_least(sums.plus(divisor, top), 0):
        return -1
    return None


def mod_known(x: Expr, y: Expr, facts: RangeAnalysis) -> Expr | None:
    quotient = known_quotient(x, y, facts)
    return None if quotient is None else x - y * quotient


def div_multiples(x: Expr, y: Expr, facts: RangeAnalysis) -> Expr | None:
    split = sums.take_out_multiples(facts.normal(x), facts.normal(y))
    if split is None:
        return None
    return ir.add(sums.to_expr(split[0]), ir.floordiv(sums.to_expr(split[1]), y))


def mod_multiples(x: Expr, y: Expr, facts: RangeAnalysis) -> Expr | None:
    split = sums.take_out_multiples(facts.normal(x), facts.normal(y))
    return None if split is None else ir.mod(sums.to_expr(split[1]), y)


def common_factor(top: Sum, number: int, facts: RangeAnalysis) -> tuple[int, Sum, Sum] | None:
    """(g, y, r) with top = g·y + r, g dividing `number`, and 0 ≤ r < g; the largest such g > 1."""
    candidates = {gcd(weight, number) for product, weight in top.items() if product}
    for g in sorted(candidates, reverse=True):
        if g <= 1:
            break
        multiple = {p: w // g for p, w in top.items() if p and w % g == 0}
        rest = {p: w for p, w in top.items() if not p or w % g}
        quotient, left = divmod(rest.pop(ONE, 0), g)
        sums.add_to(multiple, sums.constant(quotient))
        sums.add_to(rest, sums.constant(left))
        low, high = facts.range_of(rest)
        if low is not None and high is not None and low >= 0 and high < g:
            return g, multiple, rest
    return None


def div_shifted(x: Expr, y: Expr, facts: RangeAnalysis) -> Expr | None:
    """(a // c + r) // y  →  (a + c·r) // (c·y)   for a number c > 0 and y > 0"""
    total = facts.normal(x)
    for product, weight in total.items():
        inner = product[0] if len(product) == 1 and weight == 1 else None
        number = as_int(inner.b) if isinstance(inner, ir.FloorDiv) else None
        if number is None or number <= 0 or len(total) < 2 or not _is_positive(y, facts):
            continue
        assert isinstance(inner, ir.FloorDiv)
        rest = sums.plus(total, {product: 1}, -1)
        return (inner.a + sums.to_expr(rest) * number) // (y * number)
    return None


def div_common(x: Expr, d: int, facts: RangeAnalysis) -> Expr | None:
    found = common_factor(facts.normal(x), d, facts)
    if found is None:
        return None
    g, multiple, _ = found
    return ir.floordiv(sums.to_expr(multiple), Const(d // g))


def mod_common(x: Expr, d: int, facts: RangeAnalysis) -> Expr | None:
    found = common_factor(facts.normal(x), d, facts)
    if found is None:
        return None
    g, multiple, rest = found
    return ir.mod(sums.to_expr(multiple), Const(d // g)) * g + sums.to_expr(rest)


def mod_inner_mods(x: Expr, d: int, facts: RangeAnalysis) -> Expr | None:
    """(k·(a % c) + r) % d  →  (k·a + r) % d  where k·c is a multiple of d."""
    total = facts.normal(x)
    result = dict(total)
    for product, weight in total.items():
        for factor in product:
            number = as_int(factor.b) if isinstance(factor, ir.Mod) else None
            if not number or weight * number % d:
                continue
            assert isinstance(factor, ir.Mod)
            rest = sums.divide_product(product, (factor,)) or ONE
            sums.add_to(result, {product: weight}, -1)
            sums.add_to(result, sums.times(facts.normal(factor.a), {rest: weight}))
            break
    return None if result == total else ir.mod(sums.to_expr(result), Const(d))


def flatten(term: Expr, facts: RangeAnalysis) -> Expr:
    """Flatten nested min (max): sorted operands, without duplicates and dominated ones."""
    found = sorted(set(operands(term, type(term))), key=sums.order, reverse=True)
    kept: list[Expr] = []
    for i, one in enumerate(found):
        others = kept + found[i + 1 :]
        if not any(_dominates(type(term), other, one, facts) for other in others):
            kept.append(one)
    return chain(kept, type(term))


def unclamp(term: Expr, facts: RangeAnalysis) -> Expr | None:
    """max(a, r - min(d, c))  →  max(a, r - d)   where r - c ≤ a; min and max may be exchanged"""
    kind = type(term)
    dual = ir.Min if kind is ir.Max else ir.Max
    found = list(operands(term, kind))
    for i, one in enumerate(found):
        others, total = found[:i] + found[i + 1 :], facts.normal(one)
        for product, weight in total.items():
            if len(product) != 1 or weight != -1 or type(product[0]) is not dual:
                continue
            rest = sums.plus(total, {product: -1}, -1)
            ends = (facts.normal(e) for e in operands(product[0], dual))
            cases = [sums.to_expr(sums.plus(rest, end, -1)) for end in ends]
            kept = [x for x in cases if not any(_dominates(kind, o, x, facts) for o in others)]
            if len(kept) < len(cases):
                return chain([*others, *kept], kind)
    return None


def chain(items: Sequence[Expr], kind: type[Expr]) -> Expr:
    """[a, b, c]  →  max(c, max(b, a))"""
    result = items[0]
    for one in items[1:]:
        result = ir.BUILD[kind](one, result)
    return result


def operands(term: Expr, kind: type[Expr]) -> Iterator[Expr]:
    """max(a, max(b, c))  →  a, b, c"""
    todo = [term]
    while todo:
        one = todo.pop()
        if type(one) is kind and isinstance(one, ir.Binary):
            todo += (one.b, one.a)
        else:
            yield one


def has_many_operands(term: Expr) -> bool:
    return next(islice(operands(term, type(term)), MAX_COMPARED, None), None) is not None


def _dominates(kind: type[Expr], a: Expr, b: Expr, facts: RangeAnalysis) -> bool:
    return facts.at_most(a, b) if kind is ir.Min else facts.at_most(b, a)


def _is_positive(divisor: Expr, facts: RangeAnalysis) -> bool:
    """Is a divisor, which is not zero, positive?"""
    return facts.at_least(facts.normal(divisor), 0)


# fmt: off
RULES = RuleSet(
    [
        Rule("div_in_one_step", x // y, known_quotient),
        Rule("div_by_negative", x // d, lambda x, d: -x // -d, when=lambda d: d < 0),
        Rule("div_of_multiples", x // y, div_multiples),
        Rule("div_by_common_factor", x // d, div_common, when=lambda d: d > 0),
        Rule("div_of_div", (x // y) // z, lambda x, y, z: x // (y * z),
             when=lambda y, z, facts: y != 0 and _is_positive(z, facts)),
        Rule("div_of_shifted_div", x // y, div_shifted),
        Rule("div_of_mod", (x % c) // d, lambda x, c, d: (x // d) % (c // d),
             when=lambda c, d: c > 0 and d > 0 and c % d == 0),
        Rule("mod_in_one_step", x % y, mod_known),
        Rule("mod_by_negative", x % d, lambda x, d: -(-x % -d), when=lambda d: d < 0),
        Rule("mod_of_multiples", x % y, mod_multiples),
        Rule("mod_of_mods", x % d, mod_inner_mods),
        Rule("mod_by_common_factor", x % d, mod_common, when=lambda d: d > 0),
        Rule("min_of_clamped", op("min", x, y), unclamp),
        Rule("max_of_clamped", op("max", x, y), unclamp),
        Rule("min_of_many", op("min", x, y), flatten),
        Rule("max_of_many", op("max", x, y), flatten),
    ],
    TERMS,
)
# fmt: on


class SumRule(NamedTuple):
    """A rule on a whole sum: an equal sum of lower cost, or None."""

    name: str
    apply: Callable[[Sum, RangeAnalysis], Sum | None]


def cost(total: Sum) -> int:
    """1 for each term, 4 for each `//`, `%`, `min` or `max` among its factors; heuristic."""
    return sum(1 + sum(4 for atom in product if isinstance(atom, ir.Binary)) for product in total)


def _factors(total: Sum, kind: type[ir.Binary]) -> list[tuple[ir.Binary, Product, int]]:
    """Each (atom, the other factors, weight) with an atom of this kind."""
    found = []
    for product, weight in total.items():
        for atom in dict.fromkeys(product):
            if isinstance(atom, kind) and atom.b != 0:
                found.append((atom, sums.divide_product(product, (atom,)) or ONE, weight))
    return found


def remainder_identity(atom: ir.Binary, facts: RangeAnalysis) -> Sum:
    """a - b·(a // b) - a % b, which is zero, in canonical terms; of an atom a // b or a % b."""
    zero = facts.zeros.get(atom)
    if zero is None:
        a, b = atom.a, atom.b
        quotient = sums.times(facts.normal(b), facts.normal(ir.floordiv(a, b)))
        zero = sums.plus(facts.normal(a), quotient, -1)
        sums.add_to(zero, facts.normal(ir.mod(a, b)), -1)
        facts.zeros[atom] = zero
    return zero


def _cheaper(
    total: Sum, atom: ir.Binary, rest: Product, scale: int, facts: RangeAnalysis
) -> Sum | None:
    """The sum plus scale·rest times the atom's identity, if that has a lower cost."""
    zero = remainder_identity(atom, facts)
    cancelled = sum(sums.join(product, rest) in total for product in zero if product)
    if cancelled < 2:  # only the atom itself would cancel
        return None
    better = sums.plus(total, sums.times(zero, {rest: scale}))
    return better if cost(better) < cost(total) else None


def join_div_and_mod(total: Sum, facts: RangeAnalysis) -> Sum | None:
    """(a // b)·b + a % b  →  a"""
    for atom, rest, weight in _factors(total, ir.Mod):
        better = _cheaper(total, atom, rest, weight, facts)
        if better is not None:
            return better
    return None


def remainder_from_div(total: Sum, facts: RangeAnalysis) -> Sum | None:
    """a - (a // b)·b  →  a % b"""
    for atom, rest, weight in _factors(total, ir.FloorDiv):
        number = as_int(atom.b)
        scale = weight // number if number is not None and weight % number == 0 else 0
        if number is None:
            lead = sums.divide_product(rest, (atom.b,))
            rest, scale = (rest, 0) if lead is None else (lead, weight)
        better = _cheaper(total, atom, rest, scale, facts) if scale else None
        if better is not None:
            return better
    return None


def join_digits(total: Sum, facts: RangeAnalysis) -> Sum | None:
    """a % c + ((a // c) % d)·c  →  a % (c·d)   for numbers c, d > 0"""
    mods = _factors(total, ir.Mod)
    for low, rest, weight in mods:
        size = as_int(low.b)
        if size is None or size <= 0:
            continue
        upper = facts.normal(ir.floordiv(low.a, low.b))
        for high, other, heavier in mods:
            base = as_int(high.b)
            if base is None or base <= 0 or other != rest or heavier != weight * size:
                continue
            if facts.normal(high.a) != upper:
                continue
            better = dict(total)
            for atom, scale in ((low, weight), (high, heavier)):
                sums.add_to(better, {sums.join((atom,), rest): scale}, -1)
            whole = facts.normal(ir.mod(low.a, Const(size * base)))
            better = sums.plus(better, sums.times(whole, {rest: weight}))
            return better if cost(better) < cost(total) else None
    return None


def cancel_ceiling(total: Sum, facts: RangeAnalysis) -> Sum | None:
    """(a + d - 1) // d + (-a) // d  →  0   for a number d > 0: the ceiling of a / d, negated"""
    quotients = _factors(total, ir.FloorDiv)
    for i, (first, rest, weight) in enumerate(quotients):
        size = as_int(first.b)
        for second, other, same in quotients[i + 1 :]:
            if size is None or size <= 0 or (second.b, other, same) != (first.b, rest, weight):
                continue
            left = sums.plus(facts.normal(first.a), facts.normal(second.a))
            number = left.get(ONE, 0) if left.keys() <= {ONE} else None
            if number is None or (number + 1) % size:
                continue
            better = dict(total)
            for atom in (first, second):
                sums.add_to(better, {sums.join((atom,), rest): weight}, -1)
            sums.add_to(better, {rest: weight * ((number + 1) // size - 1)})
            return better
    return None


SUM_RULES = (
    SumRule("join_div_and_mod", join_div_and_mod),
    SumRule("remainder_from_div", remainder_from_div),
    SumRule("join_digits", join_digits),
    SumRule("cancel_ceiling", cancel_ceiling),
)

"""Range analysis: intervals and symbolic bounds of expressions.

In: ranges of variables (`env`), symbolic last values (`lasts`: v ≤ last), ranges of opaque leaves.
Out: intervals, and lower bounds tight enough for symbolic sizes. Used by `rules`, `simplify` and
`bounds`.

The tight bound is a small search. If e = a·v + r with a ≥ 0 and v ≥ L always, then e ≥ a·L + r. So
replacing an atom by one of its symbolic bounds gives a lower bound of e, in which terms often
cancel: n - i with i < n becomes n - (n - 1) = 1. The search uses no rewrite rules, so that rules
can use the search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import gcd
from typing import Any

from ingot.arith import expr as ir
from ingot.arith import interval as ranges
from ingot.arith import sums
from ingot.arith.counterexamples import Samples
from ingot.arith.expr import Expr
from ingot.arith.interval import ANY, INF, End, Interval
from ingot.arith.sums import Product, Sum
from ingot.support.stack import segmented

OpaqueRange = Callable[[Any], Interval | None]
SEARCH_STEPS = 48  # replacements tried for one tight bound; heuristic
SEARCH_DEPTH = 8  # nested replacements; heuristic


class RangeAnalysis:
    """Ranges of variables and expressions. `simplify.Simplifier` implements `normal`."""

    def __init__(
        self,
        env: Mapping[str, Interval],
        lasts: Mapping[str, Sum] | None = None,
        opaque: OpaqueRange | None = None,
    ):
        self.env = dict(env)
        self.opaque = opaque
        self.lasts = dict(lasts or {})
        self.zeros: dict[Expr, Sum] = {}  # cache of `rules.remainder_identity`
        self._ranges: dict[Expr, Interval] = {}
        self._samples = Samples(self.env)

    def normal(self, expr: Expr) -> Sum:
        raise NotImplementedError

    # Interval arithmetic

    def range(self, expr: Expr) -> Interval:
        """The range by interval arithmetic over the tree."""
        match expr:
            case ir.Const(value=value):
                return Interval(value, value)
            case ir.Var(name=name):
                return self.env.get(name, ANY)
        found = self._ranges.get(expr)
        if found is None:
            found = self._ranges[expr] = self._range(expr)
        return found

    @segmented
    def _range(self, expr: Expr) -> Interval:
        match expr:
            case ir.Opaque(payload=payload):
                known = self.opaque(payload) if self.opaque is not None else None
                return ANY if known is None else known
            case ir.Binary(a=a, b=b):
                return ranges.ACT[type(expr)](self.range(a), self.range(b))
        raise TypeError(f"not an integer expression: {expr!r}")

    def range_of(self, total: Mapping[Product, int]) -> Interval:
        """The range of a sum by interval arithmetic over its products."""
        low: int | None = 0
        high: int | None = 0
        for product, weight in total.items():
            part = ranges.scale(self._product_range(product), weight)
            low = None if low is None or part.low is None else low + part.low
            high = None if high is None or part.high is None else high + part.high
        return Interval(low, high)

    def _product_range(self, product: Product) -> Interval:
        if not product:
            return Interval(1, 1)
        result = self.range(product[0])
        for factor in product[1:]:
            result = ranges.mul(result, self.range(factor))
        return result

    # Tight bounds

    def tight(self, total: Sum) -> Interval:
        """The tightest interval that the search finds."""
        plain = self.range_of(total)
        low = self._search(total, INF)
        high = -self._search(sums.scaled(total, -1), INF)
        return ranges.intersect(plain, ranges.interval(low, high))

    def at_least(self, total: Sum, goal: int) -> bool:
        """Is the sum ≥ goal for all values in the ranges?"""
        low = self.range_of(total).low
        if low is not None and low >= goal:
            return True
        if not self.lasts and self._samples.contradict(total, goal):
            return False
        return self._search(total, goal) >= goal

    def at_most(self, a: Expr, b: Expr) -> bool:
        """Is a ≤ b for all values in the ranges?"""
        return self.at_least(sums.plus(self.normal(b), self.normal(a), -1), 0)

    def _search(self, total: Sum, goal: End) -> End:
        return _Search(self, goal).low(total, 0)

    def last(self, atom: Expr) -> Sum | None:
        """The symbolic largest value of a variable."""
        return self.lasts.get(atom.name) if isinstance(atom, ir.Var) else None

    def symbolic_bounds(self, atom: Expr, upper: bool) -> Iterator[Sum]:
        """Expressions that are upper (or lower) bounds of the atom."""
        match atom:
            case ir.Var(name=name):
                if upper and name in self.lasts:
                    yield self.lasts[name]
                number = self.env.get(name, ANY)[1 if upper else 0]
                if number is not None:
                    yield sums.constant(number)
            case ir.Min(a=a, b=b) if upper:
                yield sums.of(a)
                yield sums.of(b)
            case ir.Max(a=a, b=b) if not upper:
                yield sums.of(a)
                yield sums.of(b)
            case ir.Mod(b=b) if self.is_divisor(b):
                yield sums.plus(sums.of(b), sums.constant(-1)) if upper else {}
            case ir.FloorDiv(a=a, b=b) if self.is_divisor(b):
                for bound in self._one_step(sums.of(a), upper):
                    yield _plain_quotient(bound, b, sums.of(b))

    def _one_step(self, total: Sum, upper: bool) -> Iterator[Sum]:
        """Bounds of a sum: variables with a symbolic upper bound are set to their last value."""
        moved = total
        for product in list(total):
            for atom in product:
                last = self.last(atom)
                if last is None:
                    continue
                factor = linear_part(moved, atom)
                sign = self.range_of(factor)
                if _has_sign(sign, 1 if upper else -1):
                    moved = _replace(moved, atom, factor, last)
        if moved is not total:
            yield moved

    def is_divisor(self, expr: Expr) -> bool:
        """Is the divisor positive? None is 0 (simplify.py), so it is if it is not negative: loops
        that were fused run no iteration where the size that they are divided by is 0."""
        low, high = self.range(expr)
        return low is not None and low >= 0 and high != 0


def _has_sign(range_: Interval, sign: int) -> bool:
    """Is every value ≥ 0 (sign 1) or ≤ 0 (sign -1)?"""
    end = range_.low if sign > 0 else range_.high
    return end is not None and sign * end >= 0


def linear_part(total: Mapping[Product, int], atom: Expr) -> Sum:
    """a in total = a·atom + r, where no product of r contains `atom`."""
    part: Sum = {}
    for product, weight in total.items():
        if atom in product:
            index = product.index(atom)
            part[product[:index] + product[index + 1 :]] = weight
    return part


def _replace(total: Sum, atom: Expr, factor: Sum, value: Sum) -> Sum:
    """total = factor·atom + r   →   factor·value + r."""
    rest = {product: weight for product, weight in total.items() if atom not in product}
    return sums.plus(rest, sums.times(factor, value))


def _plain_quotient(top: Sum, divisor: Expr, terms: Sum) -> Sum:
    """top // divisor without rewrite rules, so that rules can use bounds."""
    quotient, rest = sums.take_out_multiples(top, terms) or ({}, top)
    left = ir.floordiv(sums.to_expr(rest), divisor)
    number = ir.as_int(left)
    return sums.plus(quotient, sums.atom(left) if number is None else sums.constant(number))


class _Search:
    """Depth-first search over replacements, up to the goal or SEARCH_STEPS."""

    def __init__(self, facts: RangeAnalysis, goal: End):
        self.facts, self.goal, self.steps = facts, goal, SEARCH_STEPS
        self.seen: set[frozenset[tuple[Product, int]]] = set()

    def low(self, total: Sum, depth: int) -> End:
        """The largest proved lower bound of the sum."""
        plain = self.facts.range_of(total).low
        best: End = -INF if plain is None else plain
        key = frozenset(total.items())
        if best >= self.goal or depth >= SEARCH_DEPTH or key in self.seen:
            return best
        self.seen.add(key)
        for atom in self._atoms(total):
            if self.steps <= 0 or best >= self.goal:
                break
            best = max(best, self._by_bounds(total, atom, depth))
        return best

    def _by_bounds(self, total: Sum, atom: Expr, depth: int) -> End:
        best: End = -INF
        factor = linear_part(total, atom)
        sign = self.facts.range_of(factor)
        if _has_sign(sign, 1):
            bounds = self.facts.symbolic_bounds(atom, upper=False)
        elif _has_sign(sign, -1):
            bounds = self.facts.symbolic_bounds(atom, upper=True)
        else:
            bounds = iter(())
        for bound in bounds:
            self.steps -= 1
            best = max(best, self.low(_replace(total, atom, factor, bound), depth + 1))
            if best >= self.goal or self.steps <= 0:
                return best
        best = max(best, self._by_floor(total, atom, factor, sign, depth))
        return max(best, self._by_cases(total, atom, factor, depth))

    def _by_floor(self, total: Sum, atom: Expr, factor: Sum, sign: Interval, depth: int) -> End:
        """b·(a // b) is at most a and at least a - b + 1, for b > 0; factor = multiple·b."""
        if not isinstance(atom, ir.FloorDiv) or not self.facts.is_divisor(atom.b):
            return -INF
        divisor = sums.of(atom.b)
        multiple, left = sums.take_out_multiples(factor, divisor) or ({}, factor)
        bound = sums.of(atom.a)
        if not (_has_sign(sign, 1) or _has_sign(sign, -1)):
            return -INF
        if not _has_sign(sign, -1):
            bound = sums.plus(sums.plus(bound, divisor, -1), sums.constant(1))
        self.steps -= 1
        rest = {product: weight for product, weight in total.items() if atom not in product}
        if left:
            return self._by_scaled_floor(rest, factor, divisor, bound, depth)
        return self.low(sums.plus(rest, sums.times(multiple, bound)), depth + 1)

    def _by_scaled_floor(self, rest: Sum, factor: Sum, divisor: Sum, bound: Sum, depth: int) -> End:
        """4·(m // 5), where 5 does not divide 4: bound five times the sum, then divide by five,
        rounded up."""
        weight, by = sums.as_constant(factor), sums.as_constant(divisor)
        if weight is None or by is None:
            return -INF
        times = by // gcd(weight, by)
        scaled = sums.plus(sums.scaled(rest, times), bound, weight * times // by)
        wider = _Search(self.facts, times * (self.goal - 1) + 1)
        wider.steps = self.steps
        low = wider.low(scaled, depth + 1)
        self.steps = wider.steps
        return low if low in (INF, -INF) else -(-int(low) // times)

    def _by_cases(self, total: Sum, atom: Expr, factor: Sum, depth: int) -> End:
        """Case split on a min or max: the sum is at least the smaller of both cases."""
        if not isinstance(atom, ir.Min | ir.Max):
            return -INF
        self.steps -= 2
        cases = [sums.of(operand) for operand in (atom.a, atom.b)]
        return min(self.low(_replace(total, atom, factor, case), depth + 1) for case in cases)

    def _atoms(self, total: Sum) -> list[Expr]:
        """Candidates for replacement, in order: compound atoms, bounded ones, repeated ones."""
        counts: dict[Expr, int] = {}
        for product in total:
            for atom in set(product):
                counts[atom] = counts.get(atom, 0) + 1
        useful = [a for a, n in counts.items() if self._is_useful(a, n)]
        return sorted(useful, key=self._priority)

    def _is_useful(self, atom: Expr, count: int) -> bool:
        if isinstance(atom, ir.Var):
            return count > 1 or atom.name in self.facts.lasts
        return isinstance(atom, ir.Binary)

    def _priority(self, atom: Expr) -> tuple[int, tuple[int, str]]:
        if isinstance(atom, ir.Var):
            rank = 1 if atom.name in self.facts.lasts else 2
        else:
            rank = 0
        return rank, sums.order(atom)

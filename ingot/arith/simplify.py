"""The simplifier. In: an expression and ranges. Out: an equal expression in canonical form.

    simplify((4*i + j) // 4, {"j": Interval(0, 3)})  →  i

Sums get a canonical form (`sums`); rewrite rules apply to everything else (`rules`). Exact over the
integers with floor semantics while variables are in their ranges and no divisor is zero. The result
depends on the arguments only: not on hash seeds, not on earlier calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from ingot.arith import expr as ir
from ingot.arith import sums
from ingot.arith.expr import Expr, IntLike, wrap
from ingot.arith.interval import Interval
from ingot.arith.range_analysis import OpaqueRange, RangeAnalysis
from ingot.arith.rules import RULES, SUM_RULES, chain, has_many_operands, operands
from ingot.arith.sums import Sum
from ingot.support.stack import segmented

Env = Mapping[str, Interval]
SymbolicBounds = Mapping[str, Expr]
_KEEP = 1 << 15  # expressions cached per set of ranges; heuristic


class Simplifier(RangeAnalysis):
    """Canonical sums of expressions under fixed ranges, cached."""

    def __init__(
        self, env: Env, lasts: Mapping[str, Sum] | None = None, opaque: OpaqueRange | None = None
    ):
        super().__init__(env, lasts, opaque)
        self._sums: dict[Expr, Sum] = {}
        self._exprs: dict[Expr, Expr] = {}
        self.proofs: dict[tuple[str, Expr, Expr], bool] = {}  # cache of `bounds.prove`

    def simplify(self, expr: Expr) -> Expr:
        found = self._exprs.get(expr)
        if found is None:
            self._clear_if_full()
            found = self._exprs[expr] = sums.to_expr(self.normal(expr))
        return found

    def normal(self, expr: Expr) -> Sum:
        """The canonical sum; callers must not change it."""
        if isinstance(expr, ir.Const):
            return sums.constant(expr.value)
        found = self._sums.get(expr)
        if found is None:
            found = self._sums[expr] = self._normal(expr)
        return found

    @segmented
    def _normal(self, expr: Expr) -> Sum:
        match expr:
            case ir.Const(value=value):
                return sums.constant(value)
            case ir.Var() | ir.Opaque():
                number = self.range(expr).value
                return sums.atom(expr) if number is None else sums.constant(number)
            case ir.Add() | ir.Sub():
                return self._improve(self._addends(expr))
            case ir.Mul(a=a, b=b):
                return self._improve(sums.times(self.normal(a), self.normal(b)))
            case ir.Min() | ir.Max() if has_many_operands(expr):
                return self._extreme_of_many(expr)
            case ir.FloorDiv() | ir.Mod() | ir.Min() | ir.Max():
                return self._by_rules(expr)
        raise TypeError(f"not an integer expression: {expr!r}")

    def _addends(self, expr: ir.Binary) -> Sum:
        """The sum of a chain of + and -; intermediate sums need no rules."""
        total: Sum = {}
        todo: list[tuple[Expr, int]] = [(expr, 1)]
        while todo:
            term, sign = todo.pop()
            if isinstance(term, ir.Add | ir.Sub):
                todo.append((term.a, sign))
                todo.append((term.b, sign if isinstance(term, ir.Add) else -sign))
            else:
                sums.add_to(total, self.normal(term), sign)
        return total

    def _extreme_of_many(self, expr: ir.Binary) -> Sum:
        """A long min or max at once: to compare its operands in pairs would take too long."""
        kind = type(expr)
        simple = (sums.to_expr(self.normal(x)) for x in operands(expr, kind))
        each = {y for x in simple for y in operands(x, kind)}
        kept = sorted(each, key=sums.order, reverse=True)
        numbers = [x.value for x in kept if isinstance(x, ir.Const)]
        others = [x for x in kept if not isinstance(x, ir.Const)]
        if numbers:
            others.append(ir.Const((min if kind is ir.Min else max)(numbers)))
        found = chain(others, kind)
        return sums.atom(found) if type(found) is kind else self.normal(found)

    def _improve(self, total: Sum) -> Sum:
        better: Sum | None = total
        while better is not None:
            total = better
            if len(total) < 2 or not _has_division(total):
                return total
            found = (rule.apply(total, self) for rule in SUM_RULES)
            better = next((x for x in found if x is not None), None)
        return total

    def _by_rules(self, expr: ir.Binary) -> Sum:
        a, b = sums.to_expr(self.normal(expr.a)), sums.to_expr(self.normal(expr.b))
        if isinstance(expr, ir.FloorDiv | ir.Mod) and b == 0:
            return sums.atom(type(expr)(a, b))  # undefined: left for evaluation to report
        simple = ir.BUILD[type(expr)](a, b)
        if type(simple) is not type(expr):
            return self.normal(simple)
        step = RULES.first(simple, self)
        return sums.atom(simple) if step is None else self.normal(step[1])

    def _clear_if_full(self) -> None:
        if len(self._sums) > _KEEP:
            for table in (self._sums, self._exprs, self._ranges, self.zeros, self.proofs):
                table.clear()


def _has_division(total: Sum) -> bool:
    return any(type(atom) is ir.Mod or type(atom) is ir.FloorDiv for p in total for atom in p)


def simplify(expr: IntLike, env: Env | None = None, limits: SymbolicBounds | None = None) -> Expr:
    """`expr` in canonical form; `env`: ranges, `limits`: exclusive symbolic upper bounds."""
    return simplifier(env, limits).simplify(wrap(expr))


def simplifier(
    env: Env | None = None, limits: SymbolicBounds | None = None, opaque: OpaqueRange | None = None
) -> Simplifier:
    """The simplifier for these ranges, cached by ranges."""
    if opaque is not None:  # most callers pass a new callback: caching by it would leak
        return _make(dict(env or {}), dict(limits or {}), opaque)
    return _cached(frozenset((env or {}).items()), frozenset((limits or {}).items()))


@lru_cache(maxsize=512)
def _cached(
    env: frozenset[tuple[str, Interval]], limits: frozenset[tuple[str, Expr]]
) -> Simplifier:
    return _make(dict(env), dict(limits), None)


def _make(env: Env, limits: SymbolicBounds, opaque: OpaqueRange | None) -> Simplifier:
    """Symbolic bounds are simplified with the plain ranges only: no dependence on call order."""
    if not limits:
        return Simplifier(env, None, opaque)
    plain = simplifier(env, None, opaque)
    minus_one = sums.constant(-1)
    lasts = {name: sums.plus(plain.normal(wrap(stop)), minus_one) for name, stop in limits.items()}
    return Simplifier(env, dict(sorted(lasts.items())), opaque)

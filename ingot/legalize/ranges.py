"""Value ranges of a kernel's variables: one simplifier for the whole kernel.

Names are unique within a kernel, so that one table can hold the range of every loop, and an
expression is simplified under it only once.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.arith import sums
from ingot.arith.bounds import Interval, bounds_of
from ingot.arith.simplify import simplifier
from ingot.legalize import terms
from ingot.loops import ir, visit


class Ranges:
    """Ranges of the sizes and of every loop of a kernel."""

    def __init__(self, kernel: ir.Kernel):
        self.sizes = frozenset(s.name for s in kernel.sizes)
        self.env = {s.name: Interval(s.low, s.high) for s in kernel.sizes}
        self.loops: dict[str, ir.For] = {}
        for s in visit.walk_stmts(kernel.body):
            if isinstance(s, ir.For):
                self.loops[s.var] = s
                self.env[s.var] = _loop_range(s, self.env)
        limits = {
            name: f.stop for name, f in self.loops.items() if not isinstance(f.stop, arith.Const)
        }
        self._known = simplifier(self.env, limits)

    def bounds(self, e: arith.Expr) -> Interval:
        return self._known.tight(self._known.normal(e))

    def simplify(self, e: arith.Expr) -> arith.Expr:
        return e if isinstance(e, arith.Const) else self._known.simplify(e)

    def at_least(self, e: arith.Expr, number: int) -> bool:
        """Is e ≥ number, whatever the variables are?"""
        return self._known.at_least(self._known.normal(e), number)

    def affine(self, e: arith.Expr, var: str) -> tuple[arith.Expr, arith.Expr] | None:
        """(c, rest) with e = c·var + rest, both independent of `var`; None if e is not affine."""
        factor: sums.Sum = {}
        rest: sums.Sum = {}
        for product, weight in self._known.normal(e).items():
            holders = [atom for atom in product if var in terms.index_vars(atom)]
            if not holders:
                rest[product] = weight
            elif len(holders) == 1 and isinstance(holders[0], arith.Var):
                others = sums.divide_product(product, (holders[0],))
                assert others is not None
                sums.add_to(factor, {others: weight})
            else:
                return None
        return sums.to_expr(factor), sums.to_expr(rest)

    def is_at_most(self, a: arith.Expr, b: arith.Expr) -> bool:
        return self.at_least(b - a, 0)

    def is_positive(self, e: arith.Expr) -> bool:
        return self.at_least(e, 1)


def _loop_range(loop: ir.For, env: dict[str, Interval]) -> Interval:
    low, high = _bounds(loop.start, env).low, _bounds(loop.stop, env).high
    return Interval(low, None if high is None else high - 1)


def _bounds(e: arith.Expr, env: dict[str, Interval]) -> Interval:
    return Interval(e.value, e.value) if isinstance(e, arith.Const) else bounds_of(e, env)

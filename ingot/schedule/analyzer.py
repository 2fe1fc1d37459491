"""Analyzer: ranges of sizes and loop variables at one point of a kernel, and proofs from them.

In: a kernel and the enclosing loops. Out: simplified expressions and proofs, from `arith`. False
means only that the statement could not be proved.
"""

from __future__ import annotations

from collections.abc import Iterable

from ingot.arith import bounds
from ingot.arith import expr as arith
from ingot.arith.interval import Interval
from ingot.arith.simplify import simplify
from ingot.loops import ir


class Analyzer:
    """Ranges of the kernel's sizes and of the given loops."""

    def __init__(self, kernel: ir.Kernel, loops: Iterable[ir.For] = ()):
        self.env = {s.name: Interval(s.low, s.high) for s in kernel.sizes}
        self.limits: dict[str, arith.Expr] = {}
        self.divisors = {s.name: s.divisor for s in kernel.sizes if s.divisor > 1}
        for loop in loops:
            self.add(loop)

    def add(self, loop: ir.For) -> None:
        low = bounds.bounds_of(loop.start, self.env, self.limits).low
        high = bounds.bounds_of(loop.stop, self.env, self.limits).high
        self.env[loop.var] = Interval(low, None if high is None else high - 1)
        self.limits[loop.var] = loop.stop

    def simplify(self, e: arith.Expr) -> arith.Expr:
        return simplify(e, self.env, self.limits)

    def at_most(self, a: arith.IntLike, b: arith.IntLike) -> bool:
        return bounds.prove("le", a, b, self.env, self.limits)

    def equal(self, a: arith.IntLike, b: arith.IntLike) -> bool:
        return bounds.prove("eq", a, b, self.env, self.limits)

    def divides(self, part: arith.Expr, whole: arith.Expr) -> bool:
        """Is `whole` a multiple of `part`, given the divisors of the sizes?"""
        scaled = {n: arith.Var(n) * d for n, d in self.divisors.items()}
        env = {n: Interval(0, None) if n in scaled else r for n, r in self.env.items()}
        rest = arith.substitute(whole, scaled) % arith.substitute(part, scaled)
        return arith.is_const(simplify(rest, env), 0)

    def high(self, e: arith.Expr) -> int | None:
        return bounds.bounds_of(e, self.env, self.limits).high

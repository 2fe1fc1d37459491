"""Random expressions, ranges and points for the fuzz tests; everything is seeded."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import pytest

from ingot.arith import expr as ir
from ingot.arith.bounds import Interval
from ingot.arith.expr import Const, Expr, Var

NAMES = ("i", "j", "k", "n")
DIVISORS = (1, 2, 3, 4, 6, 8, 12, -2, -3, -4)
WEIGHTS = (2, 3, 4, 8, 12, -1, -4)


class Random:
    """A seeded source of everything arith works on."""

    def __init__(self, seed: int):
        self.r = random.Random(seed)

    def expr(self, depth: int) -> Expr:
        r = self.r
        if depth == 0 or r.random() < 0.15:
            return Var(r.choice(NAMES)) if r.random() < 0.7 else Const(r.randint(-9, 9))
        kind = r.choice(
            (ir.Add, ir.Add, ir.Sub, ir.Mul, *(ir.FloorDiv, ir.Mod) * 2, ir.Min, ir.Max)
        )
        a = self.expr(depth - 1)
        if kind in (ir.FloorDiv, ir.Mod):
            return kind(a, self.divisor())
        if kind is ir.Mul and r.random() < 0.7:
            return ir.Mul(a, Const(r.choice(WEIGHTS)))
        return kind(a, self.expr(depth - 1))

    def divisor(self) -> Expr:
        if self.r.random() < 0.8:
            return Const(self.r.choice(DIVISORS))
        return Var("n") if self.r.random() < 0.7 else Var("n") + self.r.randint(1, 3)

    def env(self) -> dict[str, Interval]:
        return {name: self.interval() for name in NAMES}

    def interval(self) -> Interval:
        low = self.r.choice((None, -8, -3, 0, 0, 0, 1))
        if self.r.random() < 0.3:
            return Interval(low, None)
        return Interval(low, (low or 0) + self.r.choice((0, 1, 3, 7, 15)))

    def limits(self) -> dict[str, Expr]:
        """Half the time, symbolic stops for i and k."""
        if self.r.random() < 0.5:
            return {}
        n, k = Var("n"), Var("k")
        stops = (n, n * k, n // 4, n // 4 * 4, ir.minimum(16, n - k), n + 3)
        return {"i": self.r.choice(stops), "k": n + 1}

    def points(
        self, env: Mapping[str, Interval], limits: Mapping[str, Expr], count: int
    ) -> Iterator[dict[str, int]]:
        """Values in the ranges and below the stops; fewer than `count` where they are rare."""
        for _ in range(count):
            point = {name: self.value(env[name]) for name in NAMES}
            try:
                if all(point[v] < ir.evaluate(stop, point) for v, stop in limits.items()):
                    yield point
            except ZeroDivisionError:
                continue

    def value(self, interval: Interval) -> int:
        low, high = interval
        if low is None:
            low = -20 if high is None else high - 20
        return self.r.randint(low, low + 40 if high is None else high)


def value_at(expr: Expr, point: Mapping[str, int]) -> int | None:
    """The value, or None where a divisor is zero: there the expression means nothing."""
    try:
        return ir.evaluate(expr, point)
    except ZeroDivisionError:
        return None


@pytest.fixture
def fuzz():
    return Random


@pytest.fixture
def at():
    return value_at

"""Interval arithmetic over the integers. In: intervals. Out: intervals.

Used by `range_analysis` and `bounds`. An interval over-approximates the values of its expression. A
divisor is never zero, so zero is excluded from a divisor's range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ingot.arith import expr as ir

INF = float("inf")
End = int | float  # an int, or INF of either sign


class Interval(NamedTuple):
    """low ≤ value ≤ high, both ends included; None means unbounded on that side."""

    low: int | None = None
    high: int | None = None

    @property
    def is_bounded(self) -> bool:
        return self.low is not None and self.high is not None

    @property
    def value(self) -> int | None:
        """The only value in the interval, or None."""
        return self.low if self.low == self.high else None

    def contains(self, number: int) -> bool:
        low, high = ends(self)
        return low <= number <= high

    def __str__(self) -> str:
        low = "-∞" if self.low is None else str(self.low)
        return f"[{low}, {'∞' if self.high is None else self.high}]"


ANY = Interval(None, None)


def ends(range_: Interval) -> tuple[End, End]:
    low, high = range_
    return (-INF if low is None else low), (INF if high is None else high)


def interval(low: End, high: End) -> Interval:
    return Interval(
        None if low in (-INF, INF) else int(low), None if high in (-INF, INF) else int(high)
    )


def point(value: int) -> Interval:
    return Interval(value, value)


def union(a: Interval, b: Interval) -> Interval:
    (al, ah), (bl, bh) = ends(a), ends(b)
    return interval(min(al, bl), max(ah, bh))


def intersect(a: Interval, b: Interval) -> Interval:
    (al, ah), (bl, bh) = ends(a), ends(b)
    return interval(max(al, bl), min(ah, bh))


def negate(a: Interval) -> Interval:
    return Interval(None if a.high is None else -a.high, None if a.low is None else -a.low)


def add(a: Interval, b: Interval) -> Interval:
    return Interval(
        None if a.low is None or b.low is None else a.low + b.low,
        None if a.high is None or b.high is None else a.high + b.high,
    )


def sub(a: Interval, b: Interval) -> Interval:
    return add(a, negate(b))


def _times(x: End, y: End) -> End:
    return 0 if x == 0 or y == 0 else x * y  # 0 · ∞ is 0: that factor is always zero


def mul(a: Interval, b: Interval) -> Interval:
    (al, ah), (bl, bh) = ends(a), ends(b)
    corners = (_times(al, bl), _times(al, bh), _times(ah, bl), _times(ah, bh))
    return interval(min(corners), max(corners))


def scale(a: Interval, k: int) -> Interval:
    if k == 0:
        return point(0)
    low, high = (a.low, a.high) if k > 0 else (a.high, a.low)
    return Interval(None if low is None else low * k, None if high is None else high * k)


def _signs(b: Interval) -> tuple[Interval | None, Interval | None]:
    """The negative and the positive half of a divisor's range."""
    low, high = ends(b)
    negative = interval(low, min(high, -1)) if low < 0 else None
    positive = interval(max(low, 1), high) if high > 0 else None
    return negative, positive


def _by_sign(
    a: Interval, b: Interval, act: Callable[[Interval, Interval], Interval], flip: bool
) -> Interval:
    """Extend `act` from positive divisors to all: a op b = ±((-a) op (-b))."""
    negative, positive = _signs(b)
    halves = [act(a, positive)] if positive is not None else []
    if negative is not None:
        mirrored = act(negate(a), negate(negative))
        halves.append(negate(mirrored) if flip else mirrored)
    if not halves:
        return ANY  # the divisor is always zero: the expression has no value
    return halves[0] if len(halves) == 1 else union(*halves)


def floordiv(a: Interval, b: Interval) -> Interval:
    return _by_sign(a, b, _div_positive, flip=False)


def mod(a: Interval, b: Interval) -> Interval:
    return _by_sign(a, b, _mod_positive, flip=True)


def _quotient(x: End, d: End) -> End:
    """x // d for d > 0, in the limit where an end is infinite."""
    if x in (INF, -INF):
        return x
    if d == INF:
        return 0 if x >= 0 else -1
    return int(x) // int(d)


def _div_positive(a: Interval, b: Interval) -> Interval:
    (al, ah), (bl, bh) = ends(a), ends(b)
    return interval(_quotient(al, bh if al >= 0 else bl), _quotient(ah, bl if ah >= 0 else bh))


def _mod_positive(a: Interval, b: Interval) -> Interval:
    (al, ah), (bl, bh) = ends(a), ends(b)
    if al >= 0 and ah < bl:
        return a
    d = b.value
    if d is not None and a.low is not None and a.high is not None and a.low // d == a.high // d:
        return Interval(a.low % d, a.high % d)
    return interval(0, min(bh - 1, ah) if al >= 0 else bh - 1)


def minimum(a: Interval, b: Interval) -> Interval:
    (al, ah), (bl, bh) = ends(a), ends(b)
    return interval(min(al, bl), min(ah, bh))


def maximum(a: Interval, b: Interval) -> Interval:
    (al, ah), (bl, bh) = ends(a), ends(b)
    return interval(max(al, bl), max(ah, bh))


ACT: dict[type[ir.Expr], Callable[[Interval, Interval], Interval]] = {
    ir.Add: add, ir.Sub: sub, ir.Mul: mul, ir.FloorDiv: floordiv, ir.Mod: mod,
    ir.Min: minimum, ir.Max: maximum,
}  # fmt: skip

"""Symbolic arithmetic on elements of shape tensors: expressions over dynamic dimensions.

In: elements. Out: an element, or None if the result cannot be derived. Called by shape_values.

An integer or bool element is an `arith.Expr` (bool as 0 and 1), a float element a `Ratio` of two.
A ratio is exact. The model's f32 value is exact too while its numerator is below 2^24; factors with
more than 6 significant bits are not represented, so results agree bit for bit for sizes below 2^18.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ingot.arith import expr as arith
from ingot.arith.expr import Const, Expr
from ingot.arith.interval import Interval
from ingot.arith.simplify import simplifier
from ingot.dtypes import DType
from ingot.graph.types import Symbol

MAX_FACTOR = 64  # largest odd factor of a float constant that is represented exactly: 2^24 / 2^18


@dataclass(frozen=True)
class Ratio:
    """numerator / denominator, an element of a float tensor from which sizes are computed."""

    top: Expr
    bottom: Expr


Element = Expr | Ratio
MaybeElement = Element | None


def lift(number: Any, dtype: DType) -> MaybeElement:
    """A constant as an element; None for a float that is not a small exact fraction."""
    if not dtype.is_float:
        return Const(int(number))
    value = float(number)
    if not math.isfinite(value):
        return None
    top, bottom = value.as_integer_ratio()
    odd = abs(top) // (abs(top) & -abs(top)) if top else 0
    return Ratio(Const(top), Const(bottom)) if odd <= MAX_FACTOR else None


def _is_whole(size: Expr) -> bool:
    return not any(isinstance(e, arith.FloorDiv | arith.Mod) for e in arith.walk(size))


class SymbolicArithmetic:
    """The element-wise operators on elements, given the ranges of the symbols."""

    def __init__(self, symbols: Mapping[str, Symbol]):
        ranges = {s.name: Interval(s.low, s.high) for s in symbols.values()}
        self._facts = simplifier(ranges)
        positive = {name: Interval(max(r.low or 0, 1), r.high) for name, r in ranges.items()}
        self._nonempty = simplifier(positive)
        self.table: dict[str, Callable[..., MaybeElement]] = {
            "add": self.add, "sub": self.sub, "mul": self.mul, "div": self.div,
            "min": self.minimum, "max": self.maximum, "neg": self.negate, "abs": self.absolute,
            "floor": self.floor, "ceil": self.ceil, "relu": self.relu, "clip": self.clip,
            "eq": self.equal, "lt": self.less, "le": self.at_most,
            "gt": lambda a, b: self.less(b, a), "ge": lambda a, b: self.at_most(b, a),
            "and": self.both, "or": self.either, "not": self.negation, "where": self.where,
            "identity": lambda a: a, "require": lambda a, flag: a,
        }  # fmt: skip

    # proofs about sizes

    def simplify(self, a: Expr) -> Expr:
        return self._facts.simplify(a)

    def is_at_most(self, a: Expr, b: Expr) -> bool:
        return self._facts.at_least(self._facts.normal(b - a), 0)

    def is_natural(self, a: Expr) -> bool:
        return self.is_at_most(Const(0), a)

    def truth(self, element: MaybeElement) -> bool | None:
        """A bool element as a bool, if it is constant."""
        number = arith.as_int(element) if isinstance(element, Expr) else None
        return None if number is None else number != 0

    # arithmetic: integers are exact, floats are ratios

    def add(self, a: MaybeElement, b: MaybeElement) -> MaybeElement:
        match a, b:
            case Expr(), Expr():
                return a + b
            case Ratio(), Ratio():
                return Ratio(a.top * b.bottom + b.top * a.bottom, a.bottom * b.bottom)
        return None

    def negate(self, a: MaybeElement) -> MaybeElement:
        match a:
            case Expr():
                return -a
            case Ratio():
                return Ratio(-a.top, a.bottom)
        return None

    def sub(self, a: MaybeElement, b: MaybeElement) -> MaybeElement:
        return self.add(a, self.negate(b))

    def mul(self, a: MaybeElement, b: MaybeElement) -> MaybeElement:
        match a, b:
            case Expr(), Expr():
                return a * b
            case Ratio(), Ratio():
                return Ratio(a.top * b.top, a.bottom * b.bottom)
        return None

    def div(self, a: MaybeElement, b: MaybeElement) -> MaybeElement:
        """Integer division truncates, which equals floor division if nothing is negative. Where the
        divisor may be 0 (the model would fail there), a quotient without remainder is used."""
        match a, b:
            case Expr(), Expr() if self.is_natural(a) and self.is_at_most(Const(1), b):
                return a // b
            case Expr(), Const(value=0):
                return None  # it fails when it runs, if it ever runs
            case Expr(), Expr() if self.is_natural(a) and self.is_natural(b):
                exact = self._nonempty.simplify(a // b)
                return exact if _is_whole(exact) else a // arith.maximum(b, 1)
            case Ratio(), Ratio() if self.is_at_most(Const(1), b.top):
                return Ratio(a.top * b.bottom, a.bottom * b.top)
        return None

    def mod(self, a: MaybeElement, b: MaybeElement, fmod: bool) -> MaybeElement:
        match a, b:
            case Expr(), Expr() if self.is_at_most(Const(1), b):
                return a % b if not fmod or self.is_natural(a) else None
        return None

    def minimum(self, a: MaybeElement, b: MaybeElement) -> MaybeElement:
        match a, b:
            case Expr(), Expr():
                if self.is_at_most(a, b):
                    return a
                return b if self.is_at_most(b, a) else arith.minimum(a, b)
        return None

    def maximum(self, a: MaybeElement, b: MaybeElement) -> MaybeElement:
        match a, b:
            case Expr(), Expr():
                if self.is_at_most(a, b):
                    return b
                return a if self.is_at_most(b, a) else arith.maximum(a, b)
        return None

    def absolute(self, a: MaybeElement) -> MaybeElement:
        return a if isinstance(a, Expr) and self.is_natural(a) else None

    def relu(self, a: MaybeElement) -> MaybeElement:
        return self.maximum(a, Const(0))

    def clip(
        self, a: MaybeElement, low: MaybeElement = None, high: MaybeElement = None
    ) -> MaybeElement:
        raised = a if low is None else self.maximum(a, low)
        return raised if high is None else self.minimum(raised, high)

    def floor(self, a: MaybeElement) -> MaybeElement:
        return Ratio(a.top // a.bottom, Const(1)) if isinstance(a, Ratio) else None

    def ceil(self, a: MaybeElement) -> MaybeElement:
        return Ratio(arith.ceildiv(a.top, a.bottom), Const(1)) if isinstance(a, Ratio) else None

    def range_length(
        self, start: MaybeElement, limit: MaybeElement, delta: MaybeElement
    ) -> Expr | None:
        """The length of range(start, limit, delta)."""
        match self.sub(limit, start), delta:
            case Expr() as gap, Expr() as step if arith.as_int(step):
                count = -((-gap) // step)  # the ceiling, for steps of either sign
            case Ratio() as gap, Ratio() as step if self.is_at_most(Const(1), step.top):
                count = arith.ceildiv(gap.top * step.bottom, gap.bottom * step.top)
            case _:
                return None
        return arith.Const(0) if self.is_at_most(count, Const(0)) else self._natural_part(count)

    def _natural_part(self, a: Expr) -> Expr:
        return a if self.is_natural(a) else arith.maximum(a, 0)

    # comparisons: a result only if the ranges of the symbols prove it

    def equal(self, a: MaybeElement, b: MaybeElement) -> MaybeElement:
        match a, b:
            case Expr(), Expr():
                if a == b or (self.is_at_most(a, b) and self.is_at_most(b, a)):
                    return Const(1)
                differ = self.is_at_most(a + 1, b) or self.is_at_most(b + 1, a)
                return Const(0) if differ else None
        return None

    def at_most(self, a: MaybeElement, b: MaybeElement) -> MaybeElement:
        match a, b:
            case Expr(), Expr():
                if self.is_at_most(a, b):
                    return Const(1)
                return Const(0) if self.is_at_most(b + 1, a) else None
        return None

    def less(self, a: MaybeElement, b: MaybeElement) -> MaybeElement:
        return self.negation(self.at_most(b, a))

    def both(self, a: MaybeElement, b: MaybeElement) -> MaybeElement:
        truths = (self.truth(a), self.truth(b))
        if False in truths:
            return Const(0)
        return None if None in truths else Const(1)

    def either(self, a: MaybeElement, b: MaybeElement) -> MaybeElement:
        return self.negation(self.both(self.negation(a), self.negation(b)))

    def negation(self, a: MaybeElement) -> MaybeElement:
        truth = self.truth(a)
        return None if truth is None else Const(int(not truth))

    def where(self, c: MaybeElement, a: MaybeElement, b: MaybeElement) -> MaybeElement:
        truth = self.truth(c)
        if truth is None:
            return a if a is not None and a == b else None
        return a if truth else b

    def cast(self, a: MaybeElement, source: DType, to: DType) -> MaybeElement:
        """Between bool, i32, i64 and floats; sizes are assumed to fit the target type."""
        match a:
            case Expr() if to.name in ("f32", "f64"):
                return Ratio(a, Const(1))
            case Expr() if to.is_bool:
                return self.negation(self.equal(a, Const(0)))
            case Expr() if to.name in ("i32", "i64"):
                return a
            case Ratio() if to.name in ("f32", "f64"):
                return a
            case Ratio() if to.name in ("i32", "i64") and self.is_natural(a.top):
                return a.top // a.bottom if self.is_at_most(Const(1), a.bottom) else None
        return None

"""Iterator maps (TVM's IterMap): are index expressions injective in the loop variables?

In: index expressions, and the loops that vary in them. Out: which variables the values determine.

An index is parsed as a base plus a sum of digits, each `scale · ((v // lower) % count)` (TVM's
IterSplitExpr). If no digit overlaps the next one (each scale exceeds the maximum of the smaller
digits' sum), the value determines every digit; a variable is determined when its digits are,
without a gap. A quotient or remainder of such a sum makes the sum a variable of its own, which
determines its digits in turn. Splits and fusions produce this form; no other form is proved to be
invertible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ingot.arith import expr as arith
from ingot.arith.expr import Expr
from ingot.loops import ir
from ingot.schedule.analyzer import Analyzer
from ingot.support.stack import segmented


@dataclass(frozen=True)
class Digit:
    """scale · ((var // lower) % count); `top`: it holds the highest part of the variable."""

    var: str
    lower: Expr
    count: Expr
    scale: Expr
    top: bool


class IterMap:
    """Parses index expressions over the given loops; every other variable is a constant."""

    def __init__(self, loops: Sequence[ir.For], analyzer: Analyzer):
        self.loops = {loop.var: loop for loop in loops}
        self.analyzer = analyzer
        self.sums: dict[str, list[Digit]] = {}  # a sum treated as one variable → its digits
        self.extents: dict[str, Expr] = {loop.var: loop.extent for loop in loops}

    @segmented
    def digits(self, e: Expr) -> list[Digit] | None:
        """The digits of `e`, or None if it does not have this form."""
        if not (arith.free_vars(e) & self.loops.keys()) and not arith.opaques(e):
            return []
        match e:
            case arith.Var(name=name):
                extent = self.loops[name].extent
                return [Digit(name, arith.Const(1), extent, arith.Const(1), True)]
            case arith.Add(a=a, b=b):
                left, right = self.digits(a), self.digits(b)
                return None if left is None or right is None else left + right
            case arith.Sub(a=a, b=b):
                return self.digits(a) if self.digits(b) == [] else None
            case arith.Mul(a=a, b=b):
                return self._scaled(a, b)
            case arith.FloorDiv(a=a, b=b):
                return self._quotient(a, b)
            case arith.Mod(a=a, b=b):
                return self._remainder(a, b)
        return None

    def _scaled(self, a: Expr, b: Expr) -> list[Digit] | None:
        if self.digits(a) == []:
            a, b = b, a
        inner = self.digits(a)
        if inner is None or self.digits(b) != [] or not self.analyzer.at_most(1, b):
            return None
        return [replace(d, scale=d.scale * b) for d in inner]

    def _single(self, e: Expr) -> Digit | None:
        """`e` as one digit that starts at zero: v, v // a, (v // a) % b, or a whole sum."""
        if isinstance(e, arith.FloorDiv | arith.Mod):
            found = self.digits(e)
            return found[0] if found else None
        if not self._counts_from_zero(e):
            return None
        if isinstance(e, arith.Var):
            return Digit(e.name, arith.Const(1), self.extents[e.name], arith.Const(1), True)
        members = self._disjoint(self.digits(e))
        if not members:
            return None
        name = f"({e})"
        self.sums[name] = members
        maxima = [d.scale * (d.count - 1) for d in members]
        self.extents[name] = self.analyzer.simplify(sum(maxima, arith.Const(1)))
        return Digit(name, arith.Const(1), self.extents[name], arith.Const(1), True)

    def _counts_from_zero(self, e: Expr) -> bool:
        used = arith.free_vars(e) & self.loops.keys()
        least = self.analyzer.simplify(arith.substitute(e, dict.fromkeys(used, 0)))
        starts = all(arith.is_const(self.loops[v].start, 0) for v in used)
        return bool(used) and starts and arith.is_const(least, 0)

    def _quotient(self, a: Expr, b: Expr) -> list[Digit] | None:
        one = self._single(a)
        if one is None or not self._is_divisor(b):
            return None
        count = self.analyzer.simplify(arith.ceildiv(one.count, b))
        return [replace(one, lower=self.analyzer.simplify(one.lower * b), count=count)]

    def _remainder(self, a: Expr, b: Expr) -> list[Digit] | None:
        one = self._single(a)
        if one is None or not self._is_divisor(b):
            return None
        return [replace(one, count=b, top=False)]

    def _is_divisor(self, b: Expr) -> bool:
        """Is `b` a constant divisor? It may be an extent: zero only where no iteration runs."""
        return self.digits(b) == [] and self.analyzer.at_most(0, b)

    def decodes(self, e: Expr) -> list[Digit]:
        """The digits that the value of `e` determines; [] if none is proved."""
        return self._disjoint(self.digits(self.analyzer.simplify(e)))

    def _disjoint(self, found: list[Digit] | None) -> list[Digit]:
        """The digits by scale, if none overlaps the next; else []."""
        ordered = self._by_scale(found or [])
        reach: Expr = arith.Const(0)
        for digit in ordered or []:
            if not self.analyzer.at_most(reach + 1, digit.scale):
                return []
            reach = reach + digit.scale * (digit.count - 1)
        return ordered or []

    def _by_scale(self, digits: list[Digit]) -> list[Digit] | None:
        """Sorted by scale, if the scales can be compared."""
        left, ordered = list(digits), []
        while left:
            for digit in left:
                if all(self.analyzer.at_most(digit.scale, other.scale) for other in left):
                    break
            else:
                return None
            left.remove(digit)
            ordered.append(digit)
        return ordered

    def determined(self, indices: Sequence[Expr], shape: Sequence[Expr] = ()) -> set[str]:
        """The variables that the values of `indices` determine.

        With a shape, the row-major address is used too: equal indices have equal addresses, and in
        the address a fused loop that was split again is one sum.
        """
        exprs = [*indices, address(indices, shape)] if shape else list(indices)
        digits = [d for e in exprs for d in self.decodes(e)]
        opened: set[str] = set()
        while whole := [v for v in self.sums if v not in opened and self._is_whole(v, digits)]:
            opened.update(whole)
            digits += [d for v in whole for d in self.sums[v]]
        return {v for v in self.loops if self._is_whole(v, digits)}

    def _is_whole(self, var: str, known: list[Digit]) -> bool:
        """Do the known digits cover the variable up to its extent, without a gap?"""
        extent = self.extents[var]
        digits = sorted((d for d in known if d.var == var), key=lambda d: not d.top)
        reached: Expr = arith.Const(1)
        while not self.analyzer.at_most(extent, reached):
            digit = next((d for d in digits if self.analyzer.equal(d.lower, reached)), None)
            if digit is None or (not digit.top and self.analyzer.at_most(digit.count, 1)):
                return False
            if digit.top:
                return True
            digits.remove(digit)
            reached = self.analyzer.simplify(reached * digit.count)
        return True

    def covers_exactly(self, e: Expr) -> bool:
        """Does `e` take every value from its minimum to its maximum?"""
        found = self.digits(self.analyzer.simplify(e))
        if found is None:
            return False
        ordered = self._by_scale(found)
        if ordered is None or any(not d.top for d in ordered):
            return False
        reach: Expr = arith.Const(1)
        for digit in ordered:
            if not arith.is_const(digit.lower, 1) or not self.analyzer.at_most(digit.scale, reach):
                return False
            reach = reach + digit.scale * (digit.count - 1)
        return len({d.var for d in ordered}) == len(ordered)


def address(indices: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """The row-major offset of an element."""
    total: Expr = arith.Const(0)
    for index, size in zip(indices, shape):
        total = total * size + index
    return total

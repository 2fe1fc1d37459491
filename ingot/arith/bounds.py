"""Bounds and proofs. In: expressions, ranges of variables. Out: Interval, bool.

    bounds_of(4*i + j, {"i": Interval(0, 7), "j": Interval(0, 3)})   →  Interval(0, 31)
    prove("lt", i, n, env, limits={"i": n})                          →  True

Used by schedules, verifiers and legalize. False means "not proved", never "false".
"""

from __future__ import annotations

from math import gcd
from typing import Literal

from ingot.arith import sums
from ingot.arith.expr import IntLike, wrap
from ingot.arith.interval import Interval
from ingot.arith.range_analysis import OpaqueRange
from ingot.arith.simplify import Env, Simplifier, SymbolicBounds, simplifier
from ingot.arith.sums import ONE, Sum

__all__ = ["Env", "Interval", "Relation", "bounds_of", "extent", "prove"]

Relation = Literal["lt", "le", "eq", "ge", "gt", "ne"]


def extent(size: int) -> Interval:
    """The range of a loop variable: 0 to size - 1."""
    return Interval(0, size - 1)


def bounds_of(
    expr: IntLike,
    env: Env | None = None,
    limits: SymbolicBounds | None = None,
    opaque: OpaqueRange | None = None,
) -> Interval:
    """An interval with every value that `expr` can take."""
    facts = simplifier(env, limits, opaque)
    return facts.tight(facts.normal(wrap(expr)))


def prove(
    op: Relation,
    a: IntLike,
    b: IntLike,
    env: Env | None = None,
    limits: SymbolicBounds | None = None,
    opaque: OpaqueRange | None = None,
) -> bool:
    """True only if `a op b` is proved for all values in the ranges.

    `limits`: exclusive symbolic upper bounds, {"i": n} means i < n. `opaque`: ranges of opaque
    leaves by payload.
    """
    facts = simplifier(env, limits, opaque)
    key = (op, wrap(a), wrap(b))
    found = facts.proofs.get(key)
    if found is None:  # verifiers ask the same of every stage
        found = facts.proofs[key] = _prove(op, facts.normal(key[2] - key[1]), facts)
    return found


def _prove(op: Relation, gap: Sum, facts: Simplifier) -> bool:
    match op:
        case "lt":
            return facts.at_least(gap, 1)
        case "le":
            return facts.at_least(gap, 0)
        case "gt":
            return facts.at_least(sums.scaled(gap, -1), 1)
        case "ge":
            return facts.at_least(sums.scaled(gap, -1), 0)
        case "eq":
            return facts.at_least(gap, 0) and facts.at_least(sums.scaled(gap, -1), 0)
        case "ne":
            return _differs(gap, facts)
    raise ValueError(f"unknown relation {op!r}")


def _differs(gap: Sum, facts: Simplifier) -> bool:
    """Is the sum never zero: of one sign, or not a multiple of its terms' gcd?"""
    if facts.at_least(gap, 1) or facts.at_least(sums.scaled(gap, -1), 1):
        return True
    step = gcd(*(weight for product, weight in gap.items() if product))
    return step > 1 and gap.get(ONE, 0) % step != 0

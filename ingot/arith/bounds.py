"""Ranges of expressions, and proofs. In: expressions, ranges of variables. Out: Interval, bool.

    bounds_of(4*i + j, {"i": Interval(0, 7), "j": Interval(0, 3)})   →  Interval(0, 31)
    prove("lt", i, n, env, limits={"i": n})                          →  True

Schedules, the verifiers and legalize ask here. A False means "not shown", never "false".
"""

from __future__ import annotations

from math import gcd
from typing import Literal

from ingot.arith import sums
from ingot.arith.expr import IntLike, wrap
from ingot.arith.facts import OpaqueRange
from ingot.arith.interval import ANY, Interval
from ingot.arith.simplify import Env, Limits, Simplifier, simplifier
from ingot.arith.sums import ONE, Sum

__all__ = ["ANY", "Env", "Interval", "Limits", "Relation", "bounds_of", "extent", "prove"]

Relation = Literal["lt", "le", "eq", "ge", "gt", "ne"]


def extent(size: int) -> Interval:
    """The range of a loop variable that counts from 0 to size - 1."""
    return Interval(0, size - 1)


def bounds_of(
    expr: IntLike,
    env: Env | None = None,
    limits: Limits | None = None,
    opaque: OpaqueRange | None = None,
) -> Interval:
    """A range that holds every value `expr` takes while its variables are in theirs."""
    facts = simplifier(env, limits, opaque)
    return facts.sharp(facts.normal(wrap(expr)))


def prove(
    op: Relation,
    a: IntLike,
    b: IntLike,
    env: Env | None = None,
    limits: Limits | None = None,
    opaque: OpaqueRange | None = None,
) -> bool:
    """True only when `a op b` holds for all values in the ranges.

    `limits` gives exclusive symbolic stops: {"i": n} says i < n. `opaque` gives ranges of opaque
    leaves by payload.
    """
    facts = simplifier(env, limits, opaque)
    gap = facts.normal(wrap(b) - wrap(a))
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
    """Never zero: of one sign, or off every multiple of what divides its other terms."""
    if facts.at_least(gap, 1) or facts.at_least(sums.scaled(gap, -1), 1):
        return True
    step = gcd(*(weight for product, weight in gap.items() if product))
    return step > 1 and gap.get(ONE, 0) % step != 0

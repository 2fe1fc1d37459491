"""split: one loop → nested loops.

    for i in range(100)   →   for i_0 in range(13): for i_1 in range(8)      i = i_0 * 8 + i_1
                              with 100 > i_0 * 8 + i_1 added to the blocks' `where`

Legal wherever the new loops cover the old range. A tail is guarded, or refused with tail="none".
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.ir import For, Kernel
from ingot.schedule import checks, guards, tree
from ingot.schedule.checks import Problem
from ingot.schedule.facts import Facts
from ingot.schedule.primitives.base import Result, facts_at, insist, nest, put, rebind

TAILS = ("guard", "none")


def split(kernel: Kernel, loop: For, *factors: int | None, tail: str = "guard") -> Result:
    what = f"split({loop.var}, {', '.join(map(str, factors))})"
    insist(kernel, loop, what, checks.expect_serial(loop) or _bad_factors(factors, tail))
    facts = facts_at(kernel, loop)
    counts, is_exact = _counts(loop, factors, facts)
    if not is_exact:
        insist(kernel, loop, what, _bad_tail(loop, counts, tail, facts))

    names = tree.Names(kernel)
    made = [
        For(names.fresh(f"{loop.var}_{n}"), arith.Const(0), count, loop.body)
        for n, count in enumerate(counts)
    ]
    index = loop.start
    for n, piece in enumerate(made):
        index = index + arith.Var(piece.var) * arith.product(list(counts[n + 1 :]))
    body = loop.body
    if not is_exact:
        body = _guarded(body, guards.less(arith.Var(loop.var), loop.stop))
    for piece in made:
        facts.add(piece)
    return put(kernel, loop, nest(made, rebind(body, {loop.var: index}, facts))), made


def _bad_factors(factors: tuple[int | None, ...], tail: str) -> Problem | None:
    if tail not in TAILS:
        return Problem(f"there is no tail {tail!r}", f"one of: {', '.join(TAILS)}")
    if len(factors) < 2 or sum(f is None for f in factors) > 1:
        return Problem(
            "it takes two or more factors, one of which may be None", "split(i, None, 8)"
        )
    if any(f is not None and f < 1 for f in factors):
        return Problem("a factor must be at least 1", "split(i, None, 8)")
    return None


def _counts(
    loop: For, factors: tuple[int | None, ...], facts: Facts
) -> tuple[tuple[arith.Expr, ...], bool]:
    """The extents of the new loops, and whether they cover the old one without a tail."""
    known = arith.product([f for f in factors if f is not None])
    if None not in factors:
        return tuple(arith.Const(f or 1) for f in factors), facts.equal(known, loop.extent)
    is_exact = facts.divides(known, loop.extent)
    rest = loop.extent // known if is_exact else arith.ceildiv(loop.extent, known)
    counts = tuple(facts.simplify(rest) if f is None else arith.Const(f) for f in factors)
    return counts, is_exact


def _bad_tail(loop: For, counts: tuple[arith.Expr, ...], tail: str, facts: Facts) -> Problem | None:
    total = arith.product(list(counts))
    shape = " x ".join(str(c) for c in counts)
    if not facts.at_most(loop.extent, total):
        return Problem(f"{shape} does not cover {loop.extent}", "make one factor None")
    if tail == "none":
        return Problem(
            f"{shape} is not shown to be exactly {loop.extent}",
            'tail="guard"' + _divisors(loop.extent),
        )
    strange = checks.foreign(loop.body)
    if strange is not None:
        return Problem(
            f"the tail cannot be guarded: a {type(strange).__name__} stands outside any block",
            "a factor that divides the extent" + _divisors(loop.extent),
        )
    return None


def _divisors(extent: arith.Expr) -> str:
    number = arith.as_int(extent)
    if number is None:
        return ""
    found = [str(d) for d in range(2, min(number, 257)) if number % d == 0]
    return f", or a divisor: {', '.join(found[-6:])}" if found else ""


def _guarded(s: ir.Stmt, guard: ir.Expr) -> ir.Stmt:
    """The guard on every block; blocks inside blocks follow their own."""
    if isinstance(s, ir.Block):
        return guards.with_guards(s, [guard])
    return visit.rebuild_stmt(s, lambda x: _guarded(x, guard), lambda e: e, lambda i: i)

"""split: one loop → nested loops.

    for i in range(100)   →   for i_0 in range(13): for i_1 in range(8)      i = i_0 * 8 + i_1

Legal wherever the new loops cover the old range. Where they may overrun it, `tail` selects:

    guard   100 > i_0 * 8 + i_1 is added to the blocks' `where`
    mask    the same, and vectors are masked in every tile instead of branching on whole tiles
    peel    12 whole tiles without a guard; a copy of the body runs the remaining 4 points
    shift   the last tile starts at 92 and recomputes 4 points (see tails.py)
    pad     all 104 points are computed, and intermediates are padded (see tails.py)
    none    an error
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.ir import For, Kernel
from ingot.schedule import checks, guards, tree
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.checks import Problem
from ingot.schedule.primitives import tails
from ingot.schedule.primitives.base import (
    Result,
    analyzer_at,
    nest,
    put,
    raise_if,
    substitute_loops,
)
from ingot.schedule.primitives.copies import partition_at
from ingot.support.stack import segmented

TAILS = ("guard", "mask", "peel", "shift", "pad", "none")
Counts = tuple[arith.Expr, ...]


def split(kernel: Kernel, loop: For, *factors: int | None, tail: str = "guard") -> Result:
    option_text = "" if tail == "guard" else f', tail="{tail}"'
    what = f"split({loop.var}, {', '.join(map(str, factors))}{option_text})"
    raise_if(kernel, loop, what, checks.expect_serial(loop) or _bad_factors(factors, tail))
    analyzer = analyzer_at(kernel, loop)
    counts, is_exact = _counts(loop, factors, analyzer)
    if is_exact:
        return _nested(kernel, loop, counts, _index(loop, counts))
    if None not in factors:
        raise_if(kernel, loop, what, _too_few(loop, counts, analyzer))
    raise_if(kernel, loop, what, _bad_tail(loop, counts, tail))
    if tail == "peel":
        return _peeled(kernel, loop, counts, analyzer)
    if tail == "shift":
        raise_if(
            kernel, loop, what, tails.not_idempotent(kernel, loop, arith.product(list(counts[1:])))
        )
        return _nested(kernel, loop, counts, _shifted(loop, counts))
    if tail == "pad":
        total = analyzer.simplify(arith.product(list(counts)))
        grown = tails.PaddedLoop(kernel, loop, total)
        raise_if(kernel, loop, what, grown.problem)
        padded, wide = grown.applied()
        return _nested(padded, wide, counts, _index(wide, counts))
    guard = guards.less(arith.Var(loop.var), loop.stop)
    guarded = ir.replace(loop, body=_guarded(loop.body, guard))
    annotations = (ir.MASKED,) if tail == "mask" else ()
    return _nested(put(kernel, loop, guarded), guarded, counts, _index(loop, counts), annotations)


def _nested(
    kernel: Kernel, loop: For, counts: Counts, index: arith.Expr, annotations: ir.Annotations = ()
) -> Result:
    """Loops over `counts` replace the loop, whose variable is `index`, over the variables
    `_piece(n)` of the new loops."""
    analyzer = analyzer_at(kernel, loop)
    names = tree.FreshNames(kernel)
    vars_ = [names.fresh(f"{loop.var}_{n}") for n in range(len(counts))]
    made = [For(v, arith.Const(0), count, loop.body) for v, count in zip(vars_, counts)]
    made[-1] = ir.replace(made[-1], annotations=annotations)
    for piece in made:
        analyzer.add(piece)
    pieces = {_piece(n): arith.Var(v) for n, v in enumerate(vars_)}
    body = substitute_loops(loop.body, {loop.var: arith.substitute(index, pieces)}, analyzer)
    return put(kernel, loop, nest(made, body)), made


def _piece(position: int) -> str:
    return f"piece {position}"  # no variable can have this name


def _index(loop: For, counts: Counts) -> arith.Expr:
    """start + i_0 * (f_1 * f_2 …) + i_1 * (f_2 …) + …"""
    index = loop.start
    for n in range(len(counts)):
        index = index + arith.Var(_piece(n)) * arith.product(list(counts[n + 1 :]))
    return index


def _shifted(loop: For, counts: Counts) -> arith.Expr:
    """As `_index`, but the last tile starts one tile before the end."""
    tile = arith.product(list(counts[1:]))
    first = arith.minimum(arith.Var(_piece(0)) * tile, loop.extent - tile)
    inner = arith.substitute(_index(loop, counts), {_piece(0): 0})
    return first + inner


def _peeled(kernel: Kernel, loop: For, counts: Counts, analyzer: Analyzer) -> Result:
    tile = arith.product(list(counts[1:]))
    whole = analyzer.simplify(loop.extent // tile)
    partitioned = partition_at(kernel, loop, loop.start + whole * tile, "tail")
    return _nested(
        partitioned.kernel, partitioned.main, (whole, *counts[1:]), _index(partitioned.main, counts)
    )


def _bad_factors(factors: tuple[int | None, ...], tail: str) -> Problem | None:
    if tail not in TAILS:
        return Problem(f"there is no tail {tail!r}", f"one of: {', '.join(TAILS)}")
    if len(factors) < 2 or sum(f is None for f in factors) > 1:
        return Problem(
            "it needs two or more factors, of which one may be None", "split(i, None, 8)"
        )
    if any(f is not None and f < 1 for f in factors):
        return Problem("a factor must be at least 1", "split(i, None, 8)")
    if tail == "peel" and factors[0] is not None:
        return Problem(
            'tail="peel" computes the number of whole tiles', "make the first factor None"
        )
    return None


def _counts(loop: For, factors: tuple[int | None, ...], analyzer: Analyzer) -> tuple[Counts, bool]:
    """The extents of the new loops, and whether they cover the old one exactly."""
    known = arith.product([f for f in factors if f is not None])
    if None not in factors:
        return tuple(arith.Const(f or 1) for f in factors), analyzer.equal(known, loop.extent)
    is_exact = analyzer.divides(known, loop.extent)
    rest = loop.extent // known if is_exact else arith.ceildiv(loop.extent, known)
    counts = tuple(analyzer.simplify(rest) if f is None else arith.Const(f) for f in factors)
    return counts, is_exact


def _too_few(loop: For, counts: Counts, analyzer: Analyzer) -> Problem | None:
    if analyzer.at_most(loop.extent, arith.product(list(counts))):
        return None
    shape = " x ".join(str(c) for c in counts)
    return Problem(f"{shape} does not cover {loop.extent}", "make one factor None")


def _bad_tail(loop: For, counts: Counts, tail: str) -> Problem | None:
    if tail == "none":
        shape = " x ".join(str(c) for c in counts)
        return Problem(
            f"{shape} is not proved to equal {loop.extent}",
            'tail="guard"' + _divisors(loop.extent),
        )
    unsupported = checks.unknown_stmt(loop.body)
    if unsupported is not None and tail != "peel":
        return Problem(
            f"the tail cannot be guarded: a {type(unsupported).__name__} is outside any block",
            'tail="peel", or a factor that divides the extent' + _divisors(loop.extent),
        )
    return None


def _divisors(extent: arith.Expr) -> str:
    number = arith.as_int(extent)
    if number is None:
        return ""
    found = [str(d) for d in range(2, min(number, 257)) if number % d == 0]
    return f", or a divisor: {', '.join(found[-6:])}" if found else ""


@segmented
def _guarded(s: ir.Stmt, guard: ir.Expr) -> ir.Stmt:
    """Add the guard to every top-level block."""
    if isinstance(s, ir.Block):
        return guards.with_guards(s, [guard])
    return visit.rebuild_stmt(s, lambda x: _guarded(x, guard), lambda e: e, lambda i: i)

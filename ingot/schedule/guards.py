"""Block predicates: `Block.where` is a conjunction of comparisons over enclosing loop variables.

It is evaluated outside the block, before its axes are bound. `split` adds a conjunct where the tail
may overrun; `compute_at` adds conjuncts where a box may leave the domain. In a hand-written kernel
a guard may name an axis, which means its binding.
"""

from __future__ import annotations

from collections.abc import Iterable

from ingot.arith import expr as arith
from ingot.arith.affine import coefficient
from ingot.arith.simplify import simplify
from ingot.loops import ir, visit
from ingot.loops.ir import Block, Expr, Kernel
from ingot.schedule.analyzer import Analyzer


def less(a: arith.Expr, b: arith.Expr) -> Expr:
    return ir.Compare("lt", ir.Index(a), ir.Index(b))


def nonnegative(a: arith.Expr) -> Expr:
    return ir.Compare("ge", ir.Index(a), ir.Index(arith.Const(0)))


def conjuncts(where: Expr | None) -> list[Expr]:
    return [] if where is None else visit.conjuncts(where)


def conjunction(terms: Iterable[Expr]) -> Expr | None:
    """The conjunction of the terms, without duplicates."""
    result: Expr | None = None
    for term in dict.fromkeys(terms):
        result = term if result is None else ir.Binary("and", result, term)
    return result


def with_guards(block: Block, more: Iterable[Expr]) -> Block:
    terms = [*conjuncts(block.where), *more]
    return ir.replace(block, where=conjunction(terms)) if terms else block


def over_loops(block: Block) -> list[Expr]:
    """The block's guards over loop variables: its axes are replaced by their bindings."""
    env = {axis.var: axis.binding for axis in block.axes}
    return [visit.substitute(term, env) for term in conjuncts(block.where)]


def over_axes(block: Block, kernel: Kernel) -> list[Expr]:
    """The guards over the block's own axes only, which stay valid in any loops."""
    known = {axis.var for axis in block.axes} | {size.name for size in kernel.sizes}
    return [term for term in conjuncts(block.where) if free_vars(term) <= known]


def extra(block: Block, analyzer: Analyzer | None = None) -> list[Expr]:
    """The guards that are not domain guards of the axes. With an `analyzer` of the enclosing loops,
    a guard on part of an axis (io < 4 where the axis is 6 io + ii < 24) is a domain guard too."""
    return [term for term in over_loops(block) if not _is_domain(term, block, analyzer)]


def _is_domain(term: Expr, block: Block, analyzer: Analyzer | None) -> bool:
    """Does the guard only keep an axis inside its own domain?"""
    match term:
        case ir.Compare(op="lt", a=ir.Index(expr=a), b=ir.Index(expr=b)):
            if any(axis.binding == a and _same(axis.extent, b) for axis in block.axes):
                return True
            return analyzer is not None and any(_is_part(a, b, x, analyzer) for x in block.axes)
        case ir.Compare(op="ge", a=ir.Index(expr=a), b=ir.Index(expr=b)):
            return arith.is_const(b, 0) and any(axis.binding == a for axis in block.axes)
    return False


def _is_part(a: arith.Expr, b: arith.Expr, axis: ir.Axis, analyzer: Analyzer) -> bool:
    """Does a ≥ b put the axis beyond its end?  axis = c·a + r with r ≥ 0, and c·b ≥ its extent."""
    found = _scaled(axis.binding, a, analyzer)
    if found is None:
        return False
    factor, rest = found
    return analyzer.at_most(0, rest) and analyzer.at_most(axis.extent, factor * b)


def implies_below(term: Expr, index: arith.Expr, size: arith.Expr, analyzer: Analyzer) -> bool:
    """Does the guard imply `index` < `size`, by a bound on `index` or on a part of it?"""
    match term:
        case ir.Compare(op="lt", a=ir.Index(expr=a), b=ir.Index(expr=b)):
            found = _scaled(index, a, analyzer)
            return found is not None and analyzer.at_most(found[0] * (b - 1) + found[1] + 1, size)
    return False


def _scaled(
    whole: arith.Expr, part: arith.Expr, analyzer: Analyzer
) -> tuple[arith.Expr, arith.Expr] | None:
    """(c, r) with whole = c·part + r and c ≥ 1, where `part` is a sum of loop variables."""
    for name in sorted(arith.free_vars(part) & arith.free_vars(whole)):
        top, bottom = coefficient(whole, name), coefficient(part, name)
        if top is None or bottom is None or not arith.is_const(bottom, 1):
            continue
        return (top, analyzer.simplify(whole - top * part)) if analyzer.at_most(1, top) else None
    return None


def keeps_below(term: Expr, index: arith.Expr, size: arith.Expr, analyzer: Analyzer) -> bool:
    """Is the guard a bound `index` < `size`?"""
    match term:
        case ir.Compare(op="lt", a=ir.Index(expr=a), b=ir.Index(expr=b)):
            return _same(a, index) and analyzer.at_most(b, size)
    return False


def keeps_nonnegative(term: Expr, index: arith.Expr) -> bool:
    """Is the guard a bound `index` ≥ 0?"""
    match term:
        case ir.Compare(op="ge", a=ir.Index(expr=a), b=ir.Index() | ir.Lit() as b):
            return _same(a, index) and arith.is_const(ir.index_of(b), 0)
    return False


def _same(a: arith.Expr, b: arith.Expr) -> bool:
    return a == b or arith.is_const(simplify(a - b), 0)


def free_vars(term: Expr) -> frozenset[str]:
    """The variables of the guard's index expressions."""
    found: set[str] = set()
    for e in visit.walk_exprs(term):
        for field in (getattr(e, "expr", None), getattr(e, "base", None)):
            if isinstance(field, arith.Expr):
                found |= arith.free_vars(field)
        if isinstance(e, ir.Load):
            found |= {name for i in e.indices for name in arith.free_vars(i)}
    return frozenset(found)

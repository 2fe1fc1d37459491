"""Block predicates: `Block.where` is a conjunction of comparisons over enclosing loop variables.

It is evaluated outside the block, before its axes are bound. `split` adds a conjunct where a tail
may overrun; `compute_at` adds conjuncts where a box may leave the domain. A hand-written kernel may
name the axes in it too; that means their bindings.
"""

from __future__ import annotations

from collections.abc import Iterable

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.affine import coefficient
from ingot.arith.simplify import simplify
from ingot.loops import ir, visit
from ingot.loops.ir import Block, Expr, Kernel
from ingot.schedule.facts import Facts


def less(a: arith.Expr, b: arith.Expr) -> Expr:
    return ir.Compare("lt", ir.Index(a), ir.Index(b))


def not_negative(a: arith.Expr) -> Expr:
    return ir.Compare("ge", ir.Index(a), ir.Index(arith.Const(0)))


def conjuncts(where: Expr | None) -> list[Expr]:
    if where is None:
        return []
    if isinstance(where, ir.Binary) and where.op == "and" and where.dtype is dtypes.bool_:
        return conjuncts(where.a) + conjuncts(where.b)
    return [where]


def conjunction(terms: Iterable[Expr]) -> Expr | None:
    """All of them, each once."""
    result: Expr | None = None
    for term in dict.fromkeys(terms):
        result = term if result is None else ir.Binary("and", result, term)
    return result


def with_guards(block: Block, more: Iterable[Expr]) -> Block:
    terms = [*conjuncts(block.where), *more]
    return ir.replace(block, where=conjunction(terms)) if terms else block


def outside(block: Block) -> list[Expr]:
    """The guards of a block over loop variables only: its axes are replaced by their bindings."""
    env = {axis.var: axis.binding for axis in block.axes}
    return [visit.substitute(term, env) for term in conjuncts(block.where)]


def of_axes(block: Block, kernel: Kernel) -> list[Expr]:
    """The guards that speak of the block's own axes alone: they hold in whatever loops it is."""
    known = {axis.var for axis in block.axes} | {size.name for size in kernel.sizes}
    return [term for term in conjuncts(block.where) if mentions(term) <= known]


def extra(block: Block, facts: Facts | None = None) -> list[Expr]:
    """The guards that do more than keep axes inside their domains. With `facts` about the loops
    around, a guard on a part of an axis (io < 4 where the axis is 6 io + ii < 24) counts too."""
    return [term for term in outside(block) if not _is_domain(term, block, facts)]


def _is_domain(term: Expr, block: Block, facts: Facts | None) -> bool:
    """Does the guard only keep an axis inside its own domain?"""
    match term:
        case ir.Compare(op="lt", a=ir.Index(expr=a), b=ir.Index(expr=b)):
            if any(axis.binding == a and _same(axis.extent, b) for axis in block.axes):
                return True
            return facts is not None and any(_is_part(a, b, x, facts) for x in block.axes)
        case ir.Compare(op="ge", a=ir.Index(expr=a), b=ir.Index(expr=b)):
            return arith.is_const(b, 0) and any(axis.binding == a for axis in block.axes)
    return False


def _is_part(a: arith.Expr, b: arith.Expr, axis: ir.Axis, facts: Facts) -> bool:
    """Does a ≥ b put the axis beyond its end?  axis = c·a + r with r ≥ 0, and c·b ≥ its extent."""
    found = _scaled(axis.binding, a, facts)
    if found is None:
        return False
    factor, rest = found
    return facts.at_most(0, rest) and facts.at_most(axis.extent, factor * b)


def implies_below(term: Expr, index: arith.Expr, size: arith.Expr, facts: Facts) -> bool:
    """Does the guard keep `index`, or a part of it, so low that it is less than `size`?"""
    match term:
        case ir.Compare(op="lt", a=ir.Index(expr=a), b=ir.Index(expr=b)):
            found = _scaled(index, a, facts)
            return found is not None and facts.at_most(found[0] * (b - 1) + found[1] + 1, size)
    return False


def _scaled(
    whole: arith.Expr, part: arith.Expr, facts: Facts
) -> tuple[arith.Expr, arith.Expr] | None:
    """(c, r) with whole = c·part + r and c ≥ 1, where `part` is a sum of loops' variables."""
    for name in sorted(arith.free_vars(part) & arith.free_vars(whole)):
        top, bottom = coefficient(whole, name), coefficient(part, name)
        if top is None or bottom is None or not arith.is_const(bottom, 1):
            continue
        return (top, facts.simplify(whole - top * part)) if facts.at_most(1, top) else None
    return None


def keeps_below(term: Expr, index: arith.Expr, size: arith.Expr, facts: Facts) -> bool:
    """Does the guard say that `index` is less than `size`?"""
    match term:
        case ir.Compare(op="lt", a=ir.Index(expr=a), b=ir.Index(expr=b)):
            return _same(a, index) and facts.at_most(b, size)
    return False


def keeps_positive(term: Expr, index: arith.Expr) -> bool:
    """Does the guard say that `index` is not negative?"""
    match term:
        case ir.Compare(op="ge", a=ir.Index(expr=a), b=ir.Index() | ir.Lit() as b):
            return _same(a, index) and arith.is_const(ir.index_of(b), 0)
    return False


def _same(a: arith.Expr, b: arith.Expr) -> bool:
    return a == b or arith.is_const(simplify(a - b), 0)


def mentions(term: Expr) -> frozenset[str]:
    """Variables the guard reads, in index arithmetic anywhere in it."""
    found: set[str] = set()
    for e in visit.walk_exprs(term):
        for field in (getattr(e, "expr", None), getattr(e, "base", None)):
            if isinstance(field, arith.Expr):
                found |= arith.free_vars(field)
        if isinstance(e, ir.Load):
            found |= {name for i in e.indices for name in arith.free_vars(i)}
    return frozenset(found)

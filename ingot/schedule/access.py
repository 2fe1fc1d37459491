"""Who touches which buffer, and where, seen from outside the blocks.

In: a statement. Out: `Access`es, whose indices are over loop variables (a block's axes replaced by
their bindings), and the boxes they cover while some of those loops run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.ir import Block, Buffer, For, Stmt
from ingot.schedule import tree
from ingot.schedule.facts import Facts


@dataclass(frozen=True)
class Access:
    """One Load or Store of a block. `inner` are loops inside the block's own body."""

    block: Block
    buffer: Buffer
    indices: tuple[arith.Expr, ...]
    writes: bool
    inner: tuple[For, ...] = ()


def of_block(block: Block) -> list[Access]:
    """Every access of a block, its init and its predicate included."""
    env = {axis.var: axis.binding for axis in block.axes}
    found = list(_of_stmt(block, block.body, env, ()))
    if block.init is not None:
        found += _of_stmt(block, block.init, env, ())
    for axis in block.axes:
        found += _values(block, visit.opaque_values(axis.binding), {}, ())
    if block.where is not None:
        found += _values(block, [block.where], {}, ())
    return found


def _of_stmt(
    block: Block, s: Stmt, env: Mapping[str, arith.Expr], inner: tuple[For, ...]
) -> Iterator[Access]:
    yield from _values(block, visit.own_exprs(s), env, inner)
    match s:
        case ir.Store():
            yield Access(block, s.buffer, _outside(s.indices, env), True, inner)
        case For():
            inner = (*inner, s)
        case Block(axes=axes):
            env = {**env, **{a.var: arith.substitute(a.binding, env) for a in axes}}
        case ir.Call(args=args):
            for box in args:
                whole = tuple(arith.Opaque(("box", n)) for n in range(box.buffer.rank))
                yield Access(block, box.buffer, whole, True, inner)
                yield Access(block, box.buffer, whole, False, inner)
    for child in visit.sub_stmts(s):
        yield from _of_stmt(block, child, env, inner)


def _values(
    block: Block, values: Sequence[ir.Expr], env: Mapping[str, arith.Expr], inner: tuple[For, ...]
) -> Iterator[Access]:
    for value in values:
        for e in visit.walk_exprs(value):
            if isinstance(e, ir.Load):
                yield Access(block, e.buffer, _outside(e.indices, env), False, inner)


def _outside(
    indices: tuple[arith.Expr, ...], env: Mapping[str, arith.Expr]
) -> tuple[arith.Expr, ...]:
    return tuple(arith.substitute(i, env) for i in indices)


def of_stmt(s: Stmt) -> list[Access]:
    return [access for block in tree.outer_blocks(s) for access in of_block(block)]


def readers(s: Stmt, name: str) -> list[Block]:
    return [b for b in tree.outer_blocks(s) if any(a.buffer.name == name for a in reads(b))]


def writers(s: Stmt, name: str) -> list[Block]:
    return [b for b in tree.outer_blocks(s) if any(a.buffer.name == name for a in writes(b))]


def reads(block: Block) -> list[Access]:
    return [a for a in of_block(block) if not a.writes]


def writes(block: Block) -> list[Access]:
    return [a for a in of_block(block) if a.writes]


@dataclass(frozen=True)
class Span:
    """The values low … high of one index; both ends included."""

    low: arith.Expr
    high: arith.Expr


def span(e: arith.Expr, inner: Mapping[str, For], facts: Facts) -> Span | None:
    """The range of `e` while the inner loops run, in terms of everything else; None if unknown."""
    if isinstance(e, arith.Opaque):
        return None
    if not arith.free_vars(e) & inner.keys() and not isinstance(e, arith.Binary):
        return Span(e, e)
    match e:
        case arith.Var(name=name):
            loop = inner[name]
            first, last = span(loop.start, inner, facts), span(loop.stop - 1, inner, facts)
            return Span(first.low, last.high) if first and last else None
        case arith.Binary(a=a, b=b):
            left, right = span(a, inner, facts), span(b, inner, facts)
            return None if left is None or right is None else _combine(e, left, right, facts)
    return None


def _combine(e: arith.Binary, a: Span, b: Span, facts: Facts) -> Span | None:
    match e:
        case arith.Add():
            return Span(a.low + b.low, a.high + b.high)
        case arith.Sub():
            return Span(a.low - b.high, a.high - b.low)
        case arith.Min():
            return Span(arith.minimum(a.low, b.low), arith.minimum(a.high, b.high))
        case arith.Max():
            return Span(arith.maximum(a.low, b.low), arith.maximum(a.high, b.high))
        case arith.Mul():
            return _product(a, b, facts)
        case arith.FloorDiv() if b.low == b.high and facts.at_most(0, b.low):
            return Span(a.low // b.low, a.high // b.low)
        case arith.Mod() if b.low == b.high and facts.at_most(0, b.low):
            if facts.equal(a.low // b.low, a.high // b.low):
                return Span(a.low % b.low, a.high % b.low)
            return Span(arith.Const(0), b.low - 1)
    return None


def _product(a: Span, b: Span, facts: Facts) -> Span | None:
    if a.low == a.high and b.low != b.high:
        a, b = b, a
    if b.low != b.high:
        return None
    if facts.at_most(0, b.low):
        return Span(a.low * b.low, a.high * b.low)
    if facts.at_most(b.low, 0):
        return Span(a.high * b.low, a.low * b.low)
    return None


@dataclass(frozen=True)
class Extent:
    """offset … offset + count - 1 along one dimension; `count` mentions no loop variable."""

    offset: arith.Expr
    count: arith.Expr


def box(
    accesses: Sequence[Access], loops: Sequence[For], shape: Sequence[arith.Expr], facts: Facts
) -> list[Extent]:
    """A box that holds everything the accesses touch while `loops` run: one Extent a dimension.

    It may reach outside the buffer where accesses are guarded; callers clip it.
    """
    return [
        _dimension([(a.indices[d], a.inner) for a in accesses], loops, size, facts)
        for d, size in enumerate(shape)
    ]


def _dimension(
    indices: Sequence[tuple[arith.Expr, tuple[For, ...]]],
    loops: Sequence[For],
    size: arith.Expr,
    facts: Facts,
) -> Extent:
    whole = Extent(arith.Const(0), size)
    total: Extent | None = None
    for e, inner in indices:
        around = {loop.var: loop for loop in (*loops, *inner)}
        found = span(e, around, facts)
        if found is None:
            return whole
        low = facts.simplify(found.low)
        piece = Extent(low, facts.simplify(found.high - low + 1))
        total = piece if total is None else _union(total, piece, facts)
        if total is None:
            return whole
    if total is None or arith.free_vars(total.count) & facts.limits.keys():
        return whole
    return total


def _union(a: Extent, b: Extent, facts: Facts) -> Extent | None:
    """The smallest extent that holds both, if their offsets can be compared."""
    if a == b:
        return a
    if facts.at_most(b.offset, a.offset):
        a, b = b, a
    if not facts.at_most(a.offset, b.offset):
        return None
    end_a, end_b = a.offset + a.count, b.offset + b.count
    for one, other in ((end_a, end_b), (end_b, end_a)):
        if facts.at_most(other, one):
            return Extent(a.offset, facts.simplify(one - a.offset))
    return None

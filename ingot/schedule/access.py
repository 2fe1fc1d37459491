"""The loads and stores of blocks, with indices over the enclosing loops' variables.

In: a block. Out: `BlockAccess`es, whose indices are over loop variables (a block's axes replaced by
their bindings), and the boxes they cover while some of those loops run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.loops import ir, regions, visit
from ingot.loops.ir import Block, Buffer, For, Stmt
from ingot.schedule.analyzer import Analyzer


@dataclass(frozen=True)
class BlockAccess:
    """One Load, Store or box of a block. `inner` are loops inside the block's own body."""

    block: Block
    buffer: Buffer
    indices: tuple[arith.Expr, ...]
    writes: bool
    inner: tuple[For, ...] = ()


def of_block(block: Block) -> list[BlockAccess]:
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
) -> Iterator[BlockAccess]:
    todo = [(s, env, inner)]
    while todo:
        s, env, inner = todo.pop()
        yield from _values(block, visit.own_exprs(s), env, inner)
        match s:
            case ir.Store():
                yield BlockAccess(block, s.buffer, _outside(s.indices, env), True, inner)
            case For():
                inner = (*inner, s)
            case Block(axes=axes):
                env = {**env, **{a.var: arith.substitute(a.binding, env) for a in axes}}
            case ir.Call():
                yield from _of_call(block, s, env, inner)
        todo += [(child, env, inner) for child in reversed(visit.sub_stmts(s))]


def _of_call(
    block: Block, s: ir.Call, env: Mapping[str, arith.Expr], inner: tuple[For, ...]
) -> Iterator[BlockAccess]:
    """Each box as accesses in loops over it: an instruction is assumed to touch the whole box."""
    meaning = s.instruction.meaning
    read, written = visit.read(meaning.body), visit.written(meaning.body)
    for number, (param, box) in enumerate(zip(meaning.params, s.args)):
        names = [f"place {d} of box {number}" for d in range(box.buffer.rank)]
        extents = [arith.substitute(e, env) for e in box.extents]
        loops = [For(n, arith.Const(0), e, s) for n, e in zip(names, extents)]
        offsets = _outside(box.offsets, env)
        indices = tuple(
            o if arith.is_const(e, 1) else o + arith.Var(n)
            for o, n, e in zip(offsets, names, extents)
        )
        for name, is_write in ((written, True), (read, False)):
            if param.name in name:
                yield BlockAccess(block, box.buffer, indices, is_write, (*inner, *loops))


def _values(
    block: Block, values: Sequence[ir.Expr], env: Mapping[str, arith.Expr], inner: tuple[For, ...]
) -> Iterator[BlockAccess]:
    for value in values:
        for e in visit.walk_exprs(value):
            if isinstance(e, ir.Load):
                yield BlockAccess(block, e.buffer, _outside(e.indices, env), False, inner)


def _outside(
    indices: tuple[arith.Expr, ...], env: Mapping[str, arith.Expr]
) -> tuple[arith.Expr, ...]:
    return tuple(arith.substitute(i, env) for i in indices)


def reads(block: Block) -> list[BlockAccess]:
    return [a for a in of_block(block) if not a.writes]


def writes(block: Block) -> list[BlockAccess]:
    return [a for a in of_block(block) if a.writes]


@dataclass(frozen=True)
class DimRange:
    """offset … offset + count - 1 along one dimension; `count` mentions no loop variable."""

    offset: arith.Expr
    count: arith.Expr


def box(
    accesses: Sequence[BlockAccess], loops: Sequence[For], rank: int, analyzer: Analyzer
) -> list[DimRange | None]:
    """A box that holds everything the accesses touch while `loops` run, dimension by dimension.

    It may reach outside the buffer where accesses are guarded. None: the range of that dimension is
    unknown, or its size changes between iterations.
    """
    around = {x.var: (x.start, x.stop) for a in accesses for x in (*loops, *a.inner)}
    return [_dimension([a.indices[d] for a in accesses], around, analyzer) for d in range(rank)]


def _dimension(
    indices: Sequence[arith.Expr], loops: regions.Loops, analyzer: Analyzer
) -> DimRange | None:
    found = regions.box_of([(e,) for e in indices], loops, analyzer.env)
    if found is None:
        return None
    offset, count = (analyzer.simplify(e) for e in found[0])
    return None if arith.free_vars(count) & analyzer.limits.keys() else DimRange(offset, count)

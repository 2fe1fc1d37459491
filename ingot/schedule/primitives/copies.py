"""A nest written twice: what peel, partition and split's peeled tail share.

    for i in range(n): B   →   for i in range(at): B  ;  for i_2 in range(n - at): B_tail

The part that stays keeps its inner loops and blocks, so handles to them live on; the copy has names
and ids of its own. A part whose reductions are under way when it begins loses its init.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.loops import ir, rename, visit
from ingot.loops.ir import AxisKind, Block, For, Kernel, Stmt
from ingot.schedule import tree
from ingot.schedule.facts import Facts
from ingot.schedule.primitives.base import facts_at, put, rebind


@dataclass(frozen=True)
class Cut:
    """The kernel with one loop cut in two, and the two loops: the one that stays, the copy."""

    kernel: Kernel
    stays: For
    copy: For


def cut(kernel: Kernel, loop: For, at: arith.Expr, suffix: str, copy_first: bool = False) -> Cut:
    """[start, at) and [at, stop) as loops of their own, in this order, both counting from zero."""
    names = tree.Names(kernel)
    duplicate = copy_of(kernel, loop, suffix, names)
    bounds = [(loop.start, at), (at, loop.stop)]
    parts = (duplicate, loop) if copy_first else (loop, duplicate)
    made = [_part(kernel, loop, part, low, high) for part, (low, high) in zip(parts, bounds)]
    stays, copy = made[::-1] if copy_first else made
    return Cut(put(kernel, loop, ir.seq(*made)), stays, copy)


def _part(kernel: Kernel, loop: For, part: For, low: arith.Expr, high: arith.Expr) -> For:
    facts = facts_at(kernel, loop)
    low = facts.simplify(low)
    head = For(part.var, arith.Const(0), facts.simplify(high - low), part.body)
    facts.add(head)
    body = rebind(part.body, {part.var: low + arith.Var(part.var)}, facts)
    return ir.replace(head, body=_under_way(body, facts))


def copy_of(kernel: Kernel, s: For, suffix: str, names: tree.Names) -> For:
    """`s` with names and ids of its own; block Y becomes Y_tail, or what the suffix is."""
    taken = _block_names(kernel)

    def on_stmt(x: Stmt) -> Stmt:
        match x:
            case For():
                return ir.replace(x, uid=ir.fresh_id())
            case Block(name=name):
                return ir.replace(x, name=_fresh(f"{name}_{suffix}", taken), uid=ir.fresh_id())
        return x

    made = visit.map_stmt(rename.copy_of(s, names.fresh), on_stmt)
    assert isinstance(made, For)
    return made


def fresh_block_name(kernel: Kernel, base: str) -> str:
    return _fresh(base, _block_names(kernel))


def _block_names(kernel: Kernel) -> set[str]:
    return {b.name for b in visit.blocks(kernel.body)}


def _fresh(base: str, taken: set[str]) -> str:
    name, count = base, 1
    while name in taken:
        count += 1
        name = f"{base}_{count}"
    taken.add(name)
    return name


def _under_way(s: Stmt, facts: Facts) -> Stmt:
    """Blocks that are never at the first point of their reduction only accumulate."""
    match s:
        case For():
            facts.add(s)
        case Block() if s.init is not None:
            reduced = [a.binding for a in s.axes if a.kind is AxisKind.REDUCE]
            return accumulating(s) if any(facts.at_most(1, e) for e in reduced) else s
        case Block():
            return s
    return visit.rebuild_stmt(s, lambda x: _under_way(x, facts), lambda e: e, lambda i: i)


def accumulating(block: Block) -> Block:
    """The block without its init: the initial values are stored elsewhere, and it says so."""
    notes = {**dict(block.annotations), ir.ACCUMULATES: True}
    return ir.replace(block, init=None, annotations=tuple(sorted(notes.items())))

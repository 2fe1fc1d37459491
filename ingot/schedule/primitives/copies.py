"""Splitting a loop's range in two, with a copy of the nest: for peel, partition and split's tail.

    for i in range(n): B   →   for i in range(at): B  ;  for i_2 in range(n - at): B_tail

The main loop keeps its inner loops and blocks, so handles to them stay valid; the copy has fresh
names and ids. Where a reduction has already started when a range begins, its init is removed.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.loops import ir, rename, visit
from ingot.loops.ir import AxisKind, Block, For, Kernel, Stmt
from ingot.schedule import tree
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.primitives.base import analyzer_at, put, substitute_loops
from ingot.support.stack import segmented


@dataclass(frozen=True)
class Partitioned:
    """The kernel with one loop split in two, the main loop and the copy."""

    kernel: Kernel
    main: For
    copy: For


def partition_at(
    kernel: Kernel, loop: For, at: arith.Expr, suffix: str, copy_first: bool = False
) -> Partitioned:
    """[start, at) and [at, stop) as two loops in this order, both from zero."""
    names = tree.FreshNames(kernel)
    duplicate = copy_of(kernel, loop, suffix, names)
    bounds = [(loop.start, at), (at, loop.stop)]
    loops = (duplicate, loop) if copy_first else (loop, duplicate)
    made = [
        _range_loop(kernel, loop, source, low, high) for source, (low, high) in zip(loops, bounds)
    ]
    main, copy = made[::-1] if copy_first else made
    return Partitioned(put(kernel, loop, ir.seq(*made)), main, copy)


def _range_loop(kernel: Kernel, loop: For, source: For, low: arith.Expr, high: arith.Expr) -> For:
    analyzer = analyzer_at(kernel, loop)
    low = analyzer.simplify(low)
    head = For(source.var, arith.Const(0), analyzer.simplify(high - low), source.body)
    analyzer.add(head)
    body = substitute_loops(source.body, {source.var: low + arith.Var(source.var)}, analyzer)
    return ir.replace(head, body=_drop_dead_inits(body, analyzer))


def copy_of(kernel: Kernel, s: For, suffix: str, names: tree.FreshNames) -> For:
    """A copy of `s` with fresh names and ids; block Y becomes Y_tail, if that is the suffix."""
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


@segmented
def _drop_dead_inits(s: Stmt, analyzer: Analyzer) -> Stmt:
    """Remove the init of blocks that never run the first point of their reduction."""
    match s:
        case For():
            analyzer.add(s)
        case Block() if s.init is not None:
            reduced = [a.binding for a in s.axes if a.kind is AxisKind.REDUCE]
            return without_init(s) if any(analyzer.at_most(1, e) for e in reduced) else s
        case Block():
            return s
    return visit.rebuild_stmt(s, lambda x: _drop_dead_inits(x, analyzer), lambda e: e, lambda i: i)


def without_init(block: Block) -> Block:
    """The block without its init, annotated: the initial values are stored elsewhere."""
    annotations = {**dict(block.annotations), ir.ACCUMULATES: True}
    return ir.replace(block, init=None, annotations=tuple(sorted(annotations.items())))

"""Cache stages: a new producer stage that a block reads from, or a consumer stage after it.

    stage; block reads its buffer          block writes its buffer; stage

In: the block after the change, and the new stage's block. Out: a kernel with both, the stage in a
nest of its own. Inside a loop that computes or uses only a part of the buffer, the stage covers
that part. Called by cache_read, cache_write and reindex.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.ir import (
    Alloc,
    Axis,
    AxisKind,
    Block,
    Buffer,
    Expr,
    For,
    Kernel,
    LoopKind,
    Seq,
    Stmt,
)  # fmt: skip
from ingot.schedule import tree
from ingot.schedule.access import DimRange
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import put, raise_if, with_body
from ingot.schedule.primitives.compute_at import find_loop, rebuild_nest, required_ranges
from ingot.schedule.primitives.recheck import recheck
from ingot.schedule.primitives.reverse_compute_at import ConsumerTile, guard_block


class FreshBlockNames(tree.FreshNames):
    """Fresh names for new stages; a stage and its buffer have the same name."""

    def __init__(self, kernel: Kernel):
        super().__init__(kernel)
        self.taken |= {b.name for b in visit.blocks(kernel.body)}

    def axes(self, extents: Sequence[arith.Expr]) -> tuple[Axis, ...]:
        """Spatial axes, not bound to any loop yet."""
        made = [self.fresh("vi") for _ in extents]
        return tuple(Axis(n, AxisKind.SPATIAL, e, arith.Var(n)) for n, e in zip(made, extents))


def points(axes: Sequence[Axis]) -> tuple[arith.Expr, ...]:
    return tuple(arith.Var(axis.var) for axis in axes)


def copy_block(names: FreshBlockNames, to: Buffer, source: Buffer, name: str) -> Block:
    """to[i, …] = source[i, …] for every point."""
    axes = names.axes(source.shape)
    point = points(axes)
    return Block(name, axes, ir.Store(to, point, ir.Load(source, point)))


def find_block(kernel: Kernel, uid: int) -> Block:
    path = tree.find(kernel.body, uid)
    assert path is not None and isinstance(path[-1], Block)
    return path[-1]


def insert_stage_before(
    kernel: Kernel, old: Block, new: Block, stage: Block, made: Buffer, what: str
) -> Kernel:
    """Replace `old` by `new`, and insert `stage`, the producer of `made`, as early as is legal."""
    before, loop = _insertion_point(kernel, old, visit.read(stage))
    _reject_vector_loops(kernel, old, what)
    analyzer = Analyzer(kernel)
    extents: dict[str, DimRange | None] = {}
    if loop is not None:
        trial = put(kernel, old, new)
        analyzer, extents = required_ranges(trial, stage, find_loop(trial, loop), {made.name})
    nest = rebuild_nest(kernel, stage, extents, analyzer)
    both = put(kernel, before, ir.seq(nest, tree.put(before, old, new)))
    return _finished(kernel, with_body(both, Alloc(made, both.body)), what)


def insert_stage_after(
    kernel: Kernel, old: Block, new: Block, stage: Block, made: Buffer, what: str
) -> Kernel:
    """Replace `old` by `new`, which writes `made`; insert its reader `stage` after the nest."""
    _reject_vector_loops(kernel, old, what)
    nest = tree.own_nest(kernel.body, old)
    above = [s for s in tree.path_to(kernel.body, old) if isinstance(s, For)]
    inside = [s for s in visit.walk_stmts(nest) if isinstance(s, For)]
    around = [s for s in above if not any(s is x for x in inside)]
    analyzer, terms = Analyzer(kernel), list[Expr]()
    extents: Mapping[str, DimRange | None] = {}
    if around:
        trial = put(kernel, old, new)
        tile = ConsumerTile(trial, stage, find_loop(trial, around[-1]), what)
        analyzer, extents, terms = tile.analyzer, tile.extents, tile.terms
    after = guard_block(rebuild_nest(kernel, stage, extents, analyzer), terms)
    both = put(kernel, nest, ir.seq(tree.put(nest, old, new), after))
    return _finished(kernel, with_body(both, Alloc(made, both.body)), what)


def _finished(before: Kernel, after: Kernel, what: str) -> Kernel:
    recheck(before, after, what)
    return after


def _insertion_point(kernel: Kernel, block: Block, reads: set[str]) -> tuple[Stmt, For | None]:
    """The outermost statement around the block that the stage may precede, and the loop around it:
    what the stage reads is allocated there, and nothing inside writes it."""
    loop: For | None = None
    hidden = {name for name in reads if tree.allocated(kernel.body, name) is not None}
    for s in tree.path_to(kernel.body, block):
        if isinstance(s, Alloc):
            hidden.discard(s.buffer.name)
        elif not isinstance(s, Seq) and not hidden and not visit.written(s) & reads:
            return s, loop
        if isinstance(s, For):
            loop = s
    raise AssertionError("the block itself writes nothing that the stage reads")


def _reject_vector_loops(kernel: Kernel, block: Block, what: str) -> None:
    for loop in tree.loops_above(kernel.body, block):
        if loop.kind is LoopKind.VECTOR:
            problem = Problem(f"{loop.var} is a vector loop", "cache before vectorising")
            raise_if(kernel, loop, what, problem)

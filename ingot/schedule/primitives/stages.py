"""New stages beside a block: one before it that it reads from, one after it that it writes for.

    stage; block reads the stage          block writes for the stage; stage

In: the block as it will be, and the new stage's block. Out: a kernel with both, the stage in a
nest of its own. Inside a loop that makes or uses only a part, the stage covers only that part.
Called by cache_read, cache_write and reindex.
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
from ingot.schedule.access import Extent
from ingot.schedule.checks import Problem
from ingot.schedule.facts import Facts
from ingot.schedule.primitives.base import insist, put, with_body
from ingot.schedule.primitives.compute_at import loop_again, needed, remake
from ingot.schedule.primitives.recheck import recheck
from ingot.schedule.primitives.reverse_compute_at import Tile, also


class Names(tree.Names):
    """Fresh names for new stages: a stage and its buffer share one."""

    def __init__(self, kernel: Kernel):
        super().__init__(kernel)
        self.taken |= {b.name for b in visit.blocks(kernel.body)}

    def axes(self, extents: Sequence[arith.Expr]) -> tuple[Axis, ...]:
        """Spatial axes, not bound to any loop yet."""
        made = [self.fresh("vi") for _ in extents]
        return tuple(Axis(n, AxisKind.SPATIAL, e, arith.Var(n)) for n, e in zip(made, extents))


def points(axes: Sequence[Axis]) -> tuple[arith.Expr, ...]:
    return tuple(arith.Var(axis.var) for axis in axes)


def copy_block(names: Names, to: Buffer, source: Buffer, name: str) -> Block:
    """to[i, …] = source[i, …] for every point."""
    axes = names.axes(source.shape)
    point = points(axes)
    return Block(name, axes, ir.Store(to, point, ir.Load(source, point)))


def find_block(kernel: Kernel, uid: int) -> Block:
    path = tree.find(kernel.body, uid)
    assert path is not None and isinstance(path[-1], Block)
    return path[-1]


def put_before(
    kernel: Kernel, old: Block, new: Block, stage: Block, made: Buffer, what: str
) -> Kernel:
    """`new` for `old`, and `stage`, which makes `made`, as early as its inputs allow."""
    before, loop = _place(kernel, old, visit.read(stage))
    _no_lanes(kernel, old, what)
    facts = Facts(kernel)
    extents: dict[str, Extent | None] = {}
    if loop is not None:
        trial = put(kernel, old, new)
        facts, extents = needed(trial, stage, loop_again(trial, loop), {made.name})
    nest = remake(kernel, stage, extents, facts)
    both = put(kernel, before, ir.seq(nest, tree.put(before, old, new)))
    return _finished(kernel, with_body(both, Alloc(made, both.body)), what)


def put_after(
    kernel: Kernel, old: Block, new: Block, stage: Block, made: Buffer, what: str
) -> Kernel:
    """`new`, which writes `made`, for `old`; and `stage`, which reads it, right after its nest."""
    _no_lanes(kernel, old, what)
    nest = tree.own_nest(kernel.body, old)
    above = [s for s in tree.path_to(kernel.body, old) if isinstance(s, For)]
    inside = [s for s in visit.walk_stmts(nest) if isinstance(s, For)]
    around = [s for s in above if not any(s is x for x in inside)]
    facts, terms = Facts(kernel), list[Expr]()
    extents: Mapping[str, Extent | None] = {}
    if around:
        trial = put(kernel, old, new)
        tile = Tile(trial, stage, loop_again(trial, around[-1]), what)
        facts, extents, terms = tile.facts, tile.extents, tile.terms
    after = also(remake(kernel, stage, extents, facts), terms)
    both = put(kernel, nest, ir.seq(tree.put(nest, old, new), after))
    return _finished(kernel, with_body(both, Alloc(made, both.body)), what)


def _finished(before: Kernel, after: Kernel, what: str) -> Kernel:
    recheck(before, after, what)
    return after


def _place(kernel: Kernel, block: Block, reads: set[str]) -> tuple[Stmt, For | None]:
    """The outermost statement around the block that may follow the stage, and the loop around it:
    all that the stage reads is allocated there, and nothing inside writes it."""
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


def _no_lanes(kernel: Kernel, block: Block, what: str) -> None:
    for loop in tree.loops_above(kernel.body, block):
        if loop.kind is LoopKind.VECTOR:
            problem = Problem(f"{loop.var} is a vector loop", "make stages before vectorising")
            insist(kernel, loop, what, problem)

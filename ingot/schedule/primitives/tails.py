"""Tails of split that compute extra points: shifted and padded ones. Called by split.

A shifted tile computes some points twice, so everything under the loop must be idempotent. A padded
loop computes points beyond the domain, so they must be written where nothing reads: to the padding
of an intermediate.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingot.arith import expr as arith
from ingot.arith.affine import coefficient
from ingot.loops import dependences, ir, visit
from ingot.loops.ir import AxisKind, Block, Buffer, For, Kernel, Stmt
from ingot.schedule import access, checks, guards, tree
from ingot.schedule.access import BlockAccess
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import analyzer_at, put, with_body
from ingot.schedule.primitives.compute_at import find_loop
from ingot.schedule.primitives.compute_inline import DIVISIONS

PLAIN = (ir.Store, ir.Let, ir.Seq)


# --- shift --------------------------------------------------------------------------------------


def not_idempotent(kernel: Kernel, loop: For, tile: arith.Expr) -> Problem | None:
    """Why tiles of that size may not overlap."""
    if not analyzer_at(kernel, loop).at_most(tile, loop.extent):
        why = (
            f"{loop.extent} is not proved to be {tile} or more: the last tile would start before 0"
        )
        return Problem(why, 'tail="guard", or declare the size with a lower bound')
    for block in dependences.top_blocks(loop.body):
        problem = _accumulates(kernel, loop, block) or _reads_old(kernel, loop, block)
        if problem is not None:
            return problem
    return None


def _accumulates(kernel: Kernel, loop: For, block: Block) -> Problem | None:
    other = 'tail="guard" or "peel"'
    for axis in block.axes:
        if axis.kind in (AxisKind.ORDERED, AxisKind.OPAQUE):
            why = f"axis {axis.var} of block {block.name} is {axis.kind.value}: it must run once"
            return Problem(why, other)
    if all(axis.kind is AxisKind.SPATIAL for axis in block.axes):
        return None
    outside = checks.outer_reduce_loops(kernel, loop, block)
    if outside:
        why = f"{outside[0].var} accumulates into {block.name}: points in both tiles count twice"
        return Problem(why, f"{other}, or a loop around the whole reduction")
    late = checks.starts_reduction(kernel, block, tree.loops_between(loop, block))
    return Problem(f"{late.why}: points in both tiles count twice", other) if late else None


def _reads_old(kernel: Kernel, loop: For, block: Block) -> Problem | None:
    """Does the block read anything that the loop writes, except what this iteration wrote?"""
    is_spatial = all(axis.kind is AxisKind.SPATIAL for axis in block.axes)
    for name in sorted({a.buffer.name for a in access.reads(block)} & visit.written(loop.body)):
        writers = dependences.writers(loop.body, name)
        mine = [a for a in access.of_block(block) if a.buffer.name == name]
        own = any(w.uid == block.uid for w in writers) and not is_spatial
        if own and len({a.indices for a in mine}) == 1:
            continue  # an accumulator, reset by the init
        others = [w for w in writers if w.uid != block.uid]
        if not any(checks.covered(kernel, loop, w, block, name) for w in others):
            why = f"block {block.name} reads {name}, which the overlapping tile would have changed"
            return Problem(why, 'tail="guard" or "peel"')
    return None


# --- pad ----------------------------------------------------------------------------------------


class PaddedLoop:
    """A loop padded to `total` iterations; `problem`: why that is illegal."""

    def __init__(self, kernel: Kernel, loop: For, total: arith.Expr):
        self._kernel, self._loop, self.total = kernel, loop, total
        self.extra = total - loop.extent
        self.analyzer = analyzer_at(kernel, loop)
        self.analyzer.add(ir.replace(loop, stop=loop.start + total))
        self.grown: dict[str, list[arith.Expr]] = {}
        self.problem = self._form() or next(self._problems(), None)

    def _form(self) -> Problem | None:
        moving = arith.free_vars(self.total) | arith.free_vars(self._loop.extent)
        if moving & {x.var for x in tree.loops_above(self._kernel.body, self._loop)}:
            return Problem("its extent depends on an outer loop", 'tail="guard"')
        if not arith.is_const(self._loop.start, 0):
            return Problem("it does not start at 0", 'tail="guard"')
        return None

    def _problems(self) -> Iterator[Problem]:
        for block in dependences.top_blocks(self._loop.body):
            yield from self._axis_problems(block)
            yield from self._body_problems(block)
            inner = tree.loops_between(self._loop, block)
            for x in inner:
                self.analyzer.add(x)
            for a in access.of_block(block):
                for x in a.inner:
                    self.analyzer.add(x)
                yield from self._writes(a) if a.writes else self._reads(a)

    def _axis_problems(self, block: Block) -> Iterator[Problem]:
        for axis in block.axes:
            if self._loop.var not in visit.index_vars(axis.binding):
                continue
            if axis.kind is not AxisKind.SPATIAL:
                why = f"it feeds the {axis.kind.value} axis {axis.var} of block {block.name}"
                yield Problem(
                    f"{why}: extra points would change the result", 'tail="guard" or "peel"'
                )
            if axis.binding != arith.Var(self._loop.var):
                why = f"axis {axis.var} of block {block.name} is not bound to the loop itself"
                yield Problem(why, "pad before splitting or fusing")

    def _body_problems(self, block: Block) -> Iterator[Problem]:
        parts = [p for p in (block.init, block.body) if p is not None]
        for s in (x for part in parts for x in visit.walk_stmts(part)):
            if not isinstance(s, PLAIN):
                why = f"block {block.name} contains a {type(s).__name__}"
                yield Problem(f"{why}: its effect beyond the end is unknown", 'tail="guard"')
        for e in (e for part in parts for e in visit.all_exprs(part)):
            if _may_divide_by_zero(e):
                why = f"block {block.name} has a divisor that may be 0 beyond the end"
                yield Problem(why, 'tail="guard"')

    def _reads(self, a: BlockAccess) -> Iterator[Problem]:
        if self._is_guarded_in_range(a):
            return
        for d, index in enumerate(a.indices):
            if visit.opaque_values(index):
                yield Problem(f"{a.buffer.name} is read at a loaded index", 'tail="guard"')
            elif not self._within(index, a.buffer.shape[d]):
                yield from self._grow(a, d)

    def _is_guarded_in_range(self, a: BlockAccess) -> bool:
        """Is it a guarded load whose own guard keeps it in range in every iteration?"""
        env = {axis.var: axis.binding for axis in a.block.axes}
        loads = [x for x in visit.loads(a.block.body) if x.buffer.name == a.buffer.name]
        same = [x for x in loads if tuple(arith.substitute(i, env) for i in x.indices) == a.indices]
        return bool(same) and all(self._has_range_guards(x) for x in same)

    def _has_range_guards(self, load: ir.Load) -> bool:
        terms = guards.conjuncts(load.mask)
        return all(
            any(guards.keeps_below(t, index, size, self.analyzer) for t in terms)
            and any(guards.keeps_nonnegative(t, index) for t in terms)
            for index, size in zip(load.indices, load.buffer.shape)
        )

    def _writes(self, a: BlockAccess) -> Iterator[Problem]:
        if any(visit.opaque_values(index) for index in a.indices):
            yield Problem(f"{a.buffer.name} is written at a loaded index", 'tail="guard"')
            return
        if not any(self._is_disjoint(a, d) for d in range(a.buffer.rank)):
            why = f"block {a.block.name} would overwrite other elements of {a.buffer.name}"
            yield Problem(why, 'tail="guard"')
        for d, index in enumerate(a.indices):
            if not self._within(index, a.buffer.shape[d]):
                yield from self._grow(a, d)

    def _is_disjoint(self, a: BlockAccess, d: int) -> bool:
        """Do points beyond the end write, in this dimension, where nothing else does?"""
        var, index = self._loop.var, a.indices[d]
        beyond = arith.substitute(index, {var: self._loop.extent + arith.Var(var)})
        if self.analyzer.at_most(a.buffer.shape[d], beyond):
            return True
        only = len(dependences.writers(self._kernel.body, a.buffer.name)) == 1
        alone = arith.free_vars(index) & self.analyzer.limits.keys() == {var}
        return only and alone and (self._stride(index) or 0) >= 1

    def _within(self, index: arith.Expr, size: arith.Expr) -> bool:
        return self.analyzer.at_most(0, index) and self.analyzer.at_most(index + 1, size)

    def _grow(self, a: BlockAccess, d: int) -> Iterator[Problem]:
        """Grow dimension `d` of an intermediate to the range of the padded loop."""
        buffer = a.buffer
        if tree.allocated(self._kernel.body, buffer.name) is None:
            why = f"{buffer.name} is a parameter and has no room beyond {buffer.shape[d]}"
            yield Problem(why, 'tail="guard", or cache it in an intermediate first')
            return
        stride = self._stride(a.indices[d])
        if stride is None or stride < 1 or not self.analyzer.at_most(0, a.indices[d]):
            why = f"the range of {buffer.name}[{a.indices[d]}] beyond the end is not known"
            yield Problem(why, 'tail="guard"')
            return
        room = self.analyzer.simplify(buffer.shape[d] + self.extra * stride)
        wanted = self.grown.setdefault(buffer.name, list(buffer.shape))
        wanted[d] = self.analyzer.simplify(arith.maximum(wanted[d], room))

    def _stride(self, index: arith.Expr) -> int | None:
        """The stride of the index along the loop, if it is a constant."""
        stride = coefficient(index, self._loop.var, self.analyzer.env)
        return None if stride is None else arith.as_int(stride)

    def applied(self) -> tuple[Kernel, For]:
        """The kernel with the padded loop and the grown buffers, and that loop."""

        def on_stmt(s: Stmt) -> Stmt:
            return ir.replace(s, axes=tuple(map(self._axis, s.axes))) if isinstance(s, Block) else s

        body = visit.map_stmt(self._loop.body, on_stmt)
        wide = put(self._kernel, self._loop, ir.replace(self._loop, stop=self.total, body=body))
        buffers: dict[str, Buffer] = {}
        for name, shape in self.grown.items():
            alloc = tree.allocated(self._kernel.body, name)
            assert alloc is not None
            buffers[name] = ir.replace(alloc.buffer, shape=tuple(shape))
        new = with_body(wide, visit.replace_buffers(wide.body, buffers)) if buffers else wide
        return new, find_loop(new, self._loop)

    def _axis(self, axis: ir.Axis) -> ir.Axis:
        is_it = axis.binding == arith.Var(self._loop.var)
        return ir.replace(axis, extent=self.total) if is_it else axis


def _may_divide_by_zero(e: ir.Expr) -> bool:
    if not isinstance(e, ir.Binary) or e.op not in DIVISIONS or e.dtype.is_float:
        return False
    return not isinstance(e.b, ir.Lit)

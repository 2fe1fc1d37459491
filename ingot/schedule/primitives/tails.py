"""Tails of split that compute more points than there are: shifted and padded ones. Called by split.

A shifted tile computes some points twice, so everything under the loop must give the same when it
runs again. A padded loop computes points that nobody asked for, so they must be written beside what
anybody reads: to the grown part of an intermediate.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingot.arith import expr as arith
from ingot.arith.affine import coefficient
from ingot.loops import dependences, ir, visit
from ingot.loops.ir import AxisKind, Block, Buffer, For, Kernel, Stmt
from ingot.schedule import access, checks, guards, tree
from ingot.schedule.access import Access
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import facts_at, put, with_body
from ingot.schedule.primitives.compute_at import loop_again
from ingot.schedule.primitives.compute_inline import DIVISIONS

PLAIN = (ir.Store, ir.Let, ir.Seq)


# --- shift --------------------------------------------------------------------------------------


def not_again(kernel: Kernel, loop: For, tile: arith.Expr) -> Problem | None:
    """Why tiles of that size may not overlap."""
    if not facts_at(kernel, loop).at_most(tile, loop.extent):
        why = f"{loop.extent} is not shown to be {tile} or more: the last tile would begin before 0"
        return Problem(why, 'tail="guard", or declare the size with its least value')
    for block in dependences.top_blocks(loop.body):
        problem = _accumulates(kernel, loop, block) or _reads_old(kernel, loop, block)
        if problem is not None:
            return problem
    return None


def _accumulates(kernel: Kernel, loop: For, block: Block) -> Problem | None:
    other = 'tail="guard" or "peel"'
    for axis in block.axes:
        if axis.kind in (AxisKind.ORDERED, AxisKind.OPAQUE):
            why = f"axis {axis.var} of block {block.name} is {axis.kind.value}: it runs once"
            return Problem(why, other)
    if all(axis.kind is AxisKind.SPATIAL for axis in block.axes):
        return None
    outside = checks.open_loops(kernel, loop, block)
    if outside:
        why = f"{outside[0].var} accumulates into {block.name}: points in two tiles count twice"
        return Problem(why, f"{other}, or a loop around the whole reduction")
    late = checks.begins_late(kernel, block, tree.loops_between(loop, block))
    return Problem(f"{late.why}: points in two tiles count twice", other) if late else None


def _reads_old(kernel: Kernel, loop: For, block: Block) -> Problem | None:
    """Does the block read anything that the loop writes, other than what this iteration made?"""
    is_map = all(axis.kind is AxisKind.SPATIAL for axis in block.axes)
    for name in sorted({a.buffer.name for a in access.reads(block)} & visit.written(loop.body)):
        writers = dependences.writers(loop.body, name)
        mine = [a for a in access.of_block(block) if a.buffer.name == name]
        own = any(w.uid == block.uid for w in writers) and not is_map
        if own and len({a.indices for a in mine}) == 1:
            continue  # an accumulator, set anew by the init
        others = [w for w in writers if w.uid != block.uid]
        if not any(checks.covered(kernel, loop, w, block, name) for w in others):
            why = f"block {block.name} reads {name}, which it would find changed the second time"
            return Problem(why, 'tail="guard" or "peel"')
    return None


# --- pad ----------------------------------------------------------------------------------------


class Padded:
    """A loop with `total` iterations in place of its own; `problem` says why not."""

    def __init__(self, kernel: Kernel, loop: For, total: arith.Expr):
        self._kernel, self._loop, self.total = kernel, loop, total
        self.extra = total - loop.extent
        self.facts = facts_at(kernel, loop)
        self.facts.add(ir.replace(loop, stop=loop.start + total))
        self.grown: dict[str, list[arith.Expr]] = {}
        self.problem = self._form() or next(self._objections(), None)

    def _form(self) -> Problem | None:
        moving = arith.free_vars(self.total) | arith.free_vars(self._loop.extent)
        if moving & {x.var for x in tree.loops_above(self._kernel.body, self._loop)}:
            return Problem("its extent moves with a loop outside", 'tail="guard"')
        if not arith.is_const(self._loop.start, 0):
            return Problem("it does not begin at 0", 'tail="guard"')
        return None

    def _objections(self) -> Iterator[Problem]:
        for block in dependences.top_blocks(self._loop.body):
            yield from self._odd_axes(block)
            yield from self._odd_body(block)
            inner = tree.loops_between(self._loop, block)
            for x in inner:
                self.facts.add(x)
            for a in access.of_block(block):
                for x in a.inner:
                    self.facts.add(x)
                yield from self._writes(a) if a.writes else self._reads(a)

    def _odd_axes(self, block: Block) -> Iterator[Problem]:
        for axis in block.axes:
            if self._loop.var not in visit.index_vars(axis.binding):
                continue
            if axis.kind is not AxisKind.SPATIAL:
                why = f"it feeds the {axis.kind.value} axis {axis.var} of block {block.name}"
                yield Problem(f"{why}: more points change the result", 'tail="guard" or "peel"')
            if axis.binding != arith.Var(self._loop.var):
                why = f"axis {axis.var} of block {block.name} is not the loop itself"
                yield Problem(why, "pad before splitting or fusing otherwise")

    def _odd_body(self, block: Block) -> Iterator[Problem]:
        parts = [p for p in (block.init, block.body) if p is not None]
        for s in (x for part in parts for x in visit.walk_stmts(part)):
            if not isinstance(s, PLAIN):
                why = f"block {block.name} holds a {type(s).__name__}"
                yield Problem(f"{why}: beyond the end it may do anything", 'tail="guard"')
        for e in (e for part in parts for e in visit.all_exprs(part)):
            if _may_divide_by_zero(e):
                why = f"block {block.name} divides by what may be 0 beyond the end"
                yield Problem(why, 'tail="guard"')

    def _reads(self, a: Access) -> Iterator[Problem]:
        if self._held(a):
            return
        for d, index in enumerate(a.indices):
            if visit.opaque_values(index):
                yield Problem(f"{a.buffer.name} is read at a loaded index", 'tail="guard"')
            elif not self._within(index, a.buffer.shape[d]):
                yield from self._grow(a, d)

    def _held(self, a: Access) -> bool:
        """A guarded load whose own guard keeps it in range, wherever the loop goes."""
        env = {axis.var: axis.binding for axis in a.block.axes}
        loads = [x for x in visit.loads(a.block.body) if x.buffer.name == a.buffer.name]
        same = [x for x in loads if tuple(arith.substitute(i, env) for i in x.indices) == a.indices]
        return bool(same) and all(self._is_held(x) for x in same)

    def _is_held(self, load: ir.Load) -> bool:
        terms = guards.conjuncts(load.mask)
        return all(
            any(guards.keeps_below(t, index, size, self.facts) for t in terms)
            and any(guards.keeps_positive(t, index) for t in terms)
            for index, size in zip(load.indices, load.buffer.shape)
        )

    def _writes(self, a: Access) -> Iterator[Problem]:
        if any(visit.opaque_values(index) for index in a.indices):
            yield Problem(f"{a.buffer.name} is written at a loaded index", 'tail="guard"')
            return
        if not any(self._is_apart(a, d) for d in range(a.buffer.rank)):
            why = (
                f"block {a.block.name} would write elements of {a.buffer.name} that are not its own"
            )
            yield Problem(why, 'tail="guard"')
        for d, index in enumerate(a.indices):
            if not self._within(index, a.buffer.shape[d]):
                yield from self._grow(a, d)

    def _is_apart(self, a: Access, d: int) -> bool:
        """Do points beyond the end write, in this dimension, where nobody else does?"""
        var, index = self._loop.var, a.indices[d]
        beyond = arith.substitute(index, {var: self._loop.extent + arith.Var(var)})
        if self.facts.at_most(a.buffer.shape[d], beyond):
            return True
        only = len(dependences.writers(self._kernel.body, a.buffer.name)) == 1
        alone = arith.free_vars(index) & self.facts.limits.keys() == {var}
        return only and alone and (self._step(index) or 0) >= 1

    def _within(self, index: arith.Expr, size: arith.Expr) -> bool:
        return self.facts.at_most(0, index) and self.facts.at_most(index + 1, size)

    def _grow(self, a: Access, d: int) -> Iterator[Problem]:
        """Room for dimension `d` of an intermediate, as far as the longer loop reaches."""
        buffer = a.buffer
        if tree.allocated(self._kernel.body, buffer.name) is None:
            why = f"{buffer.name} is a parameter and has no room beyond {buffer.shape[d]}"
            yield Problem(why, 'tail="guard", or cache it in an intermediate first')
            return
        step = self._step(a.indices[d])
        if step is None or step < 1 or not self.facts.at_most(0, a.indices[d]):
            why = f"how far {buffer.name}[{a.indices[d]}] reaches beyond the end is not known"
            yield Problem(why, 'tail="guard"')
            return
        room = self.facts.simplify(buffer.shape[d] + self.extra * step)
        wanted = self.grown.setdefault(buffer.name, list(buffer.shape))
        wanted[d] = self.facts.simplify(arith.maximum(wanted[d], room))

    def _step(self, index: arith.Expr) -> int | None:
        """How far the index moves with each iteration, where that is one number."""
        step = coefficient(index, self._loop.var, self.facts.env)
        return None if step is None else arith.as_int(step)

    def applied(self) -> tuple[Kernel, For]:
        """The kernel with the longer loop and the grown buffers, and that loop."""

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
        return new, loop_again(new, self._loop)

    def _axis(self, axis: ir.Axis) -> ir.Axis:
        is_it = axis.binding == arith.Var(self._loop.var)
        return ir.replace(axis, extent=self.total) if is_it else axis


def _may_divide_by_zero(e: ir.Expr) -> bool:
    if not isinstance(e, ir.Binary) or e.op not in DIVISIONS or e.dtype.is_float:
        return False
    return not isinstance(e.b, ir.Lit)

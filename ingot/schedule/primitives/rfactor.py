"""rfactor: a reduction becomes partial results along one of its loops, and a smaller reduction.

    for i, ko, ki: Y[i] += X[i, 8ko + ki]   →   for i, ko, ki: Y_rf[ko, i] += X[i, 8ko + ki]
                                                for i, ko: Y[i] += Y_rf[ko, i]

The loops stay with the partial results; the block keeps its name and reduces them: after all of
them, or `within` the loop, each as soon as it is complete, so that it may stay in registers:

    for ko: for ki: for i in range(6): …    →   for ko: for ki: for i in range(6): Y_rf[ko, i] += …
                                                        for i in range(6): Y[i] += Y_rf[ko, i]

Legal for a loop that feeds only reduce axes of one block, in a nest of that block alone, whose
update is a known reducer: an operator with an identity on each output, or a choice as argmax makes
it, whose order does not matter. `within` a loop, all others of the reduction are inside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.arith import expr as arith
from ingot.loops import dependences, ir, visit
from ingot.loops.ir import Alloc, Axis, AxisKind, Block, Buffer, For, Kernel, Stmt
from ingot.schedule import checks, guards, reducers, tree
from ingot.schedule.checks import Problem
from ingot.schedule.facts import Facts
from ingot.schedule.primitives.base import Result, insist, put, with_body
from ingot.schedule.primitives.recheck import recheck
from ingot.schedule.primitives.stages import Names, find_block
from ingot.schedule.reducers import Reducer


def rfactor(kernel: Kernel, loop: For, axis: int = 0, within: bool = False) -> Result:
    what = f"rfactor({loop.var}, {axis})"
    blocks = dependences.top_blocks(loop.body)
    insist(kernel, loop, what, checks.expect_serial(loop) or _not_alone(kernel, loop, blocks))
    work = _Split(kernel, blocks[0], loop)
    insist(kernel, loop, what, work.problem() or (work.opens_late() if within else None))
    reducer = reducers.recognise(work.block)
    if isinstance(reducer, str):
        hint = "op(acc, x) with add, mul, min, max, and, or, xor; or a choice by comparisons"
        insist(kernel, work.block, what, Problem(reducer, hint))
    assert isinstance(reducer, Reducer)
    rank = reducer.buffers[0].rank
    if not 0 <= axis <= rank:
        insist(kernel, loop, what, Problem(f"there is no axis {axis}", f"0 … {rank}"))
    new, made = work.rewrite(reducer, axis, within)
    recheck(kernel, new, what)
    return new, [find_block(new, made.uid)]


def _not_alone(kernel: Kernel, loop: For, blocks: list[Block]) -> Problem | None:
    if len(blocks) != 1:
        return Problem(f"{len(blocks)} blocks are inside {loop.var}", "a loop around one block")
    if tree.find(tree.own_nest(kernel.body, blocks[0]), loop.uid) is None:
        return Problem(f"{loop.var} holds more than block {blocks[0].name}", "an inner loop")
    return None


class _Split:
    """One block, its own loops, and the loop that becomes an axis of the partial results."""

    def __init__(self, kernel: Kernel, block: Block, loop: For):
        self.kernel, self.block, self.loop = kernel, block, loop
        self.names = Names(kernel)
        self.nest = tree.own_nest(kernel.body, block)
        above = tree.loops_above(kernel.body, block)
        self.own = [x for x in above if tree.find(self.nest, x.uid) is not None]
        self.facts = Facts(kernel, above)
        self.around = [x for x in above if all(x is not y for y in self.own)]
        self.rest = [x for x in self.own if x is not loop and self._feeds(x, AxisKind.REDUCE)]

    def _feeds(self, loop: For, kind: AxisKind) -> bool:
        axes = [a for a in self.block.axes if a.kind is kind]
        return any(loop.var in arith.free_vars(a.binding) for a in axes)

    def problem(self) -> Problem | None:
        block, loop = self.block, self.loop
        strange = next((a for a in block.axes if a.kind not in _KNOWN), None)
        if strange is not None:
            why = f"the axis {strange.var} of block {block.name} is {strange.kind.value}"
            return Problem(why, "leave it as it is")
        if not self._feeds(loop, AxisKind.REDUCE):
            why = f"{loop.var} feeds no reduce axis of block {block.name}"
            return Problem(why, "choose a loop of the reduction")
        for x in self.own:
            if self._feeds(x, AxisKind.REDUCE) and self._feeds(x, AxisKind.SPATIAL):
                return Problem(f"{x.var} feeds spatial and reduce axes at once", "split it first")
            if x.kind is not ir.LoopKind.SERIAL or not arith.is_const(x.start, 0):
                return Problem(f"{x.var} is not a plain serial loop from 0", "rfactor before marks")
        for x in self.around:
            if self._feeds(x, AxisKind.REDUCE):
                return Problem(f"{x.var} outside feeds the reduction too", "choose that loop")
        if len({x.var for x in (loop, *self.rest)} & _bound_vars(self.own)):
            return Problem("bounds of its loops use each other", "rfactor before that")
        return checks.begins_late(self.kernel, block, self.own) or self._guard_problem()

    def opens_late(self) -> Problem | None:
        """Why a partial result may not be complete at the end of one turn."""
        inside = {x.uid for x in tree.loops_between(self.loop, self.block)}
        late = next((x for x in self.rest if x.uid not in inside), None)
        if late is None:
            return None
        why = f"{late.var} outside feeds the reduction too, so no turn completes a result"
        return Problem(why, "reorder first, or combine after all turns")

    def _guard_problem(self) -> Problem | None:
        """Guards of the reduction may only cut off its end, so that partial results begin."""
        if guards.extra(self.block, self.facts):
            return Problem("a guard skips some of its instances", "rfactor before that")
        start = {x.var: arith.Const(0) for x in self.rest}
        for a in self.block.axes:
            low = arith.substitute(a.binding, start)
            if a.kind is AxisKind.REDUCE and not self.facts.at_most(low, a.binding):
                return Problem(f"{a.binding} does not grow with its loops", "reorder nothing here")
        return None

    def rewrite(self, reducer: Reducer, axis: int, within: bool) -> tuple[Kernel, Block]:
        spread = [self._spread(b, axis) for b in reducer.buffers]
        partial = self._partial(reducer, spread, axis)
        around = tree.loops_between(self.loop, self.block) if within else self.own
        whole: Stmt = self.loop.body if within else self.nest
        both = ir.seq(
            tree.put(whole, self.block, partial), self._total(reducer, spread, axis, around)
        )
        nest = tree.put(self.nest, whole, both)
        body = put(self.kernel, self.nest, nest).body
        for buffer in reversed(spread):
            body = Alloc(buffer, body)
        return with_body(self.kernel, body), partial

    def _spread(self, buffer: Buffer, axis: int) -> Buffer:
        shape = (*buffer.shape[:axis], self.loop.extent, *buffer.shape[axis:])
        name = self.names.fresh(f"{buffer.name}_rf")
        return Buffer(name, buffer.dtype, tuple(map(self.facts.simplify, shape)))

    def _axis(self, loop: For, kind: AxisKind) -> Axis:
        return Axis(self.names.fresh(f"v{loop.var}"), kind, loop.extent, arith.Var(loop.var))

    def _partial(self, reducer: Reducer, spread: list[Buffer], axis: int) -> Block:
        """What one turn of the loop adds up, at a place of its own."""
        spatial = [a for a in self.block.axes if a.kind is AxisKind.SPATIAL]
        own = [ir.replace(a, var=self.names.fresh(a.var)) for a in spatial]
        turn = self._axis(self.loop, AxisKind.SPATIAL)
        rest = [self._axis(x, AxisKind.REDUCE) for x in self.rest]
        pairs = zip((self.loop, *self.rest), (turn, *rest))
        loops: dict[str, arith.Expr] = {x.var: arith.Var(a.var) for x, a in pairs}
        env: dict[str, arith.Expr] = {a.var: arith.Var(b.var) for a, b in zip(spatial, own)}
        for a in self.block.axes:
            if a.kind is AxisKind.REDUCE:
                env[a.var] = arith.substitute(a.binding, loops)
        mine = reducer.substituted(env)
        point = (*mine.point[:axis], arith.Var(turn.var), *mine.point[axis:])
        starts = [visit.substitute(e, env) for e in reducer.starts(self.block)]
        mine = mine.moved(spread, point)
        fresh = self.names.fresh
        init: Stmt | None = reducers.assign(spread, point, starts, fresh)
        body = mine.update(mine.terms, fresh)
        if not rest:
            init, body = None, reducers.assign(spread, point, mine.terms, fresh)
        return Block(
            spread[0].name, (turn, *own, *rest), body, init, guards.conjunction(self._ends(loops))
        )

    def _ends(self, loops: dict[str, arith.Expr]) -> list[ir.Expr]:
        """The guards of the partial results: those of the reduction as conditions on its axes,
        which stay true wherever the block goes."""
        inner = {self.loop.var, *(x.var for x in self.rest)}
        outside = {x.var for x in self.own} - inner
        found = []
        for term in guards.outside(self.block):
            is_own = guards.mentions(term) & inner and not guards.mentions(term) & outside
            found.append(visit.substitute(term, loops) if is_own else term)
        return found

    def _total(
        self, reducer: Reducer, spread: list[Buffer], axis: int, around: Sequence[For]
    ) -> Stmt:
        """The partial results combined, in loops like those given without the inner reduction."""
        kept = [x for x in around if all(x.uid != y.uid for y in self.rest)]
        loops = [ir.replace(x, var=self.names.fresh(x.var), uid=ir.fresh_id()) for x in kept]
        env: dict[str, arith.Expr] = {x.var: arith.Var(y.var) for x, y in zip(kept, loops)}
        for x in loops:
            self.facts.add(x)
        name = env.get(self.loop.var, arith.Var(self.loop.var))
        turn = Axis(self.names.fresh(f"v{self.loop.var}"), AxisKind.REDUCE, self.loop.extent, name)
        spatial = [a for a in self.block.axes if a.kind is AxisKind.SPATIAL]
        axes = [ir.replace(a, binding=arith.substitute(a.binding, env)) for a in spatial]
        point = (*reducer.point[:axis], arith.Var(turn.var), *reducer.point[axis:])
        terms = [ir.Load(b, point) for b in spread]
        block = ir.replace(
            self.block,
            axes=(*axes, turn),
            body=reducer.update(terms, self.names.fresh),
            where=guards.conjunction(self._first_guards(env, turn)),
        )
        body: Stmt = block
        for x in reversed(loops):
            body = ir.replace(x, body=body)
        return body

    def _first_guards(self, env: dict[str, arith.Expr], turn: Axis) -> list[ir.Expr]:
        """The guards as they are at the first turn of the inner loops, where not always true. One
        on the turn alone speaks of its axis, and stays true wherever the block goes."""
        start: dict[str, arith.Expr] = {x.var: arith.Const(0) for x in self.rest}
        own = {x.var for x in self.own} - start.keys() - {self.loop.var}
        kept = []
        for term in guards.outside(self.block):
            mentions = guards.mentions(term)
            on_axis = {self.loop.var: arith.Var(turn.var)}
            term = visit.substitute(term, {**start, **(env if mentions & own else on_axis)})
            kept += [] if self._always(term, turn) else [term]
        return kept

    def _always(self, term: ir.Expr, turn: Axis) -> bool:
        """Does a guard that speaks of the turn's axis hold at each of its points?"""
        term = visit.substitute(term, {turn.var: turn.binding})
        match term:
            case ir.Compare(op="lt", a=ir.Index(expr=a), b=ir.Index(expr=b)):
                return self.facts.at_most(a + 1, b)
            case ir.Compare(op="ge", a=ir.Index(expr=a), b=ir.Index(expr=b)):
                return self.facts.at_most(b, a)
        return False


_KNOWN = (AxisKind.SPATIAL, AxisKind.REDUCE)


def _bound_vars(loops: list[For]) -> set[str]:
    return {v for x in loops for v in arith.free_vars(x.start) | arith.free_vars(x.stop)}

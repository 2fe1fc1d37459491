"""rfactor: a reduction becomes partial reductions along one of its loops, and a final reduction.

    for i, ko, ki: Y[i] += X[i, 8ko + ki]   →   for i, ko, ki: Y_rf[ko, i] += X[i, 8ko + ki]
                                                for i, ko: Y[i] += Y_rf[ko, i]

The partial results keep the loops; the block keeps its name and reduces the partial results: after
all of them, or `within` the loop, each as soon as it is complete, so that it may stay in registers:

    for ko: for ki: for i in range(6): …    →   for ko: for ki: for i in range(6): Y_rf[ko, i] += …
                                                        for i in range(6): Y[i] += Y_rf[ko, i]

Legal for a loop that feeds only reduce axes of one block, in a nest of that block only, whose
update is a known reducer (reducers.py): an operator with an identity for each output, or an
order-independent select such as argmax. `within` a loop, all other reduce loops are inside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.arith import expr as arith
from ingot.loops import dependences, ir, visit
from ingot.loops.ir import Alloc, Axis, AxisKind, Block, Buffer, For, Kernel, Stmt
from ingot.schedule import checks, guards, reducers, tree
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import Result, put, raise_if, with_body
from ingot.schedule.primitives.cache_stage import FreshBlockNames, find_block
from ingot.schedule.primitives.recheck import recheck
from ingot.schedule.reducers import Reducer


def rfactor(kernel: Kernel, loop: For, axis: int = 0, within: bool = False) -> Result:
    what = f"rfactor({loop.var}, {axis})"
    blocks = dependences.top_blocks(loop.body)
    raise_if(kernel, loop, what, checks.expect_serial(loop) or _not_alone(kernel, loop, blocks))
    work = _Rfactor(kernel, blocks[0], loop)
    raise_if(kernel, loop, what, work.problem() or (work.incomplete_within() if within else None))
    reducer = reducers.recognise(work.block)
    if isinstance(reducer, str):
        hint = "op(acc, x) with add, mul, min, max, and, or, xor; or a select by comparisons"
        raise_if(kernel, work.block, what, Problem(reducer, hint))
    assert isinstance(reducer, Reducer)
    rank = reducer.buffers[0].rank
    if not 0 <= axis <= rank:
        raise_if(kernel, loop, what, Problem(f"there is no axis {axis}", f"0 … {rank}"))
    new, made = work.rewrite(reducer, axis, within)
    recheck(kernel, new, what)
    return new, [find_block(new, made.uid)]


def _not_alone(kernel: Kernel, loop: For, blocks: list[Block]) -> Problem | None:
    if len(blocks) != 1:
        return Problem(
            f"{len(blocks)} blocks are inside {loop.var}", "choose a loop around one block"
        )
    if tree.find(tree.own_nest(kernel.body, blocks[0]), loop.uid) is None:
        return Problem(
            f"{loop.var} contains more than block {blocks[0].name}", "choose an inner loop"
        )
    return None


class _Rfactor:
    """A block, its own loops, and the loop that becomes an axis of the partial results."""

    def __init__(self, kernel: Kernel, block: Block, loop: For):
        self.kernel, self.block, self.loop = kernel, block, loop
        self.names = FreshBlockNames(kernel)
        self.nest = tree.own_nest(kernel.body, block)
        above = tree.loops_above(kernel.body, block)
        self.own = [x for x in above if tree.find(self.nest, x.uid) is not None]
        self.analyzer = Analyzer(kernel, above)
        self.around = [x for x in above if all(x is not y for y in self.own)]
        self.rest = [x for x in self.own if x is not loop and self._feeds(x, AxisKind.REDUCE)]

    def _feeds(self, loop: For, kind: AxisKind) -> bool:
        axes = [a for a in self.block.axes if a.kind is kind]
        return any(loop.var in arith.free_vars(a.binding) for a in axes)

    def problem(self) -> Problem | None:
        block, loop = self.block, self.loop
        unsupported = next((a for a in block.axes if a.kind not in _KNOWN), None)
        if unsupported is not None:
            why = f"the axis {unsupported.var} of block {block.name} is {unsupported.kind.value}"
            return Problem(why, "leave it as it is")
        if not self._feeds(loop, AxisKind.REDUCE):
            why = f"{loop.var} feeds no reduce axis of block {block.name}"
            return Problem(why, "choose a loop of the reduction")
        for x in self.own:
            if self._feeds(x, AxisKind.REDUCE) and self._feeds(x, AxisKind.SPATIAL):
                return Problem(f"{x.var} feeds spatial and reduce axes at once", "split it first")
            if x.kind is not ir.LoopKind.SERIAL or not arith.is_const(x.start, 0):
                return Problem(
                    f"{x.var} is not a serial loop from 0", "rfactor before vectorize or unroll"
                )
        for x in self.around:
            if self._feeds(x, AxisKind.REDUCE):
                return Problem(f"{x.var} outside feeds the reduction too", "choose that loop")
        if len({x.var for x in (loop, *self.rest)} & _bound_vars(self.own)):
            return Problem("bounds of its loops use each other", "rfactor before that")
        return checks.starts_reduction(self.kernel, block, self.own) or self._guard_problem()

    def incomplete_within(self) -> Problem | None:
        """Why a partial result may not be complete at the end of one iteration."""
        inside = {x.uid for x in tree.loops_between(self.loop, self.block)}
        late = next((x for x in self.rest if x.uid not in inside), None)
        if late is None:
            return None
        why = f"{late.var} outside feeds the reduction too, so no iteration completes a result"
        return Problem(why, "reorder first, or rfactor with within=False")

    def _guard_problem(self) -> Problem | None:
        """Guards may only skip the end of the reduction, so that partial results have an init."""
        if guards.extra(self.block, self.analyzer):
            return Problem("a guard skips some of its instances", "rfactor before that")
        start = {x.var: arith.Const(0) for x in self.rest}
        for a in self.block.axes:
            low = arith.substitute(a.binding, start)
            if a.kind is AxisKind.REDUCE and not self.analyzer.at_most(low, a.binding):
                return Problem(
                    f"{a.binding} does not increase with its loops", "choose another loop"
                )
        return None

    def rewrite(self, reducer: Reducer, axis: int, within: bool) -> tuple[Kernel, Block]:
        partial_buffers = [self._partial_buffer(b, axis) for b in reducer.buffers]
        partial = self._partial(reducer, partial_buffers, axis)
        around = tree.loops_between(self.loop, self.block) if within else self.own
        whole: Stmt = self.loop.body if within else self.nest
        both = ir.seq(
            tree.put(whole, self.block, partial),
            self._final_reduction(reducer, partial_buffers, axis, around),
        )
        nest = tree.put(self.nest, whole, both)
        body = put(self.kernel, self.nest, nest).body
        for buffer in reversed(partial_buffers):
            body = Alloc(buffer, body)
        return with_body(self.kernel, body), partial

    def _partial_buffer(self, buffer: Buffer, axis: int) -> Buffer:
        shape = (*buffer.shape[:axis], self.loop.extent, *buffer.shape[axis:])
        name = self.names.fresh(f"{buffer.name}_rf")
        return Buffer(name, buffer.dtype, tuple(map(self.analyzer.simplify, shape)))

    def _axis(self, loop: For, kind: AxisKind) -> Axis:
        return Axis(self.names.fresh(f"v{loop.var}"), kind, loop.extent, arith.Var(loop.var))

    def _partial(self, reducer: Reducer, partial_buffers: list[Buffer], axis: int) -> Block:
        """The block that reduces one iteration of the loop into its own element."""
        spatial = [a for a in self.block.axes if a.kind is AxisKind.SPATIAL]
        own = [ir.replace(a, var=self.names.fresh(a.var)) for a in spatial]
        factor_axis = self._axis(self.loop, AxisKind.SPATIAL)
        rest = [self._axis(x, AxisKind.REDUCE) for x in self.rest]
        pairs = zip((self.loop, *self.rest), (factor_axis, *rest))
        loops: dict[str, arith.Expr] = {x.var: arith.Var(a.var) for x, a in pairs}
        env: dict[str, arith.Expr] = {a.var: arith.Var(b.var) for a, b in zip(spatial, own)}
        for a in self.block.axes:
            if a.kind is AxisKind.REDUCE:
                env[a.var] = arith.substitute(a.binding, loops)
        mine = reducer.substituted(env)
        point = (*mine.point[:axis], arith.Var(factor_axis.var), *mine.point[axis:])
        initial_values = [visit.substitute(e, env) for e in reducer.initial_values(self.block)]
        mine = mine.moved(partial_buffers, point)
        fresh = self.names.fresh
        init: Stmt | None = reducers.assign(partial_buffers, point, initial_values, fresh)
        body = mine.update(mine.terms, fresh)
        if not rest:
            init, body = None, reducers.assign(partial_buffers, point, mine.terms, fresh)
        return Block(
            partial_buffers[0].name,
            (factor_axis, *own, *rest),
            body,
            init,
            guards.conjunction(self._partial_guards(loops)),
        )

    def _partial_guards(self, loops: dict[str, arith.Expr]) -> list[ir.Expr]:
        """The guards of the partial results, over their axes where possible: those stay valid
        wherever the block moves."""
        inner = {self.loop.var, *(x.var for x in self.rest)}
        outside = {x.var for x in self.own} - inner
        found = []
        for term in guards.over_loops(self.block):
            is_own = guards.free_vars(term) & inner and not guards.free_vars(term) & outside
            found.append(visit.substitute(term, loops) if is_own else term)
        return found

    def _final_reduction(
        self, reducer: Reducer, partial_buffers: list[Buffer], axis: int, around: Sequence[For]
    ) -> Stmt:
        """The final reduction, in copies of the given loops without the inner reduce loops."""
        kept = [x for x in around if all(x.uid != y.uid for y in self.rest)]
        loops = [ir.replace(x, var=self.names.fresh(x.var), uid=ir.fresh_id()) for x in kept]
        env: dict[str, arith.Expr] = {x.var: arith.Var(y.var) for x, y in zip(kept, loops)}
        for x in loops:
            self.analyzer.add(x)
        name = env.get(self.loop.var, arith.Var(self.loop.var))
        factor_axis = Axis(
            self.names.fresh(f"v{self.loop.var}"), AxisKind.REDUCE, self.loop.extent, name
        )
        spatial = [a for a in self.block.axes if a.kind is AxisKind.SPATIAL]
        axes = [ir.replace(a, binding=arith.substitute(a.binding, env)) for a in spatial]
        point = (*reducer.point[:axis], arith.Var(factor_axis.var), *reducer.point[axis:])
        terms = [ir.Load(b, point) for b in partial_buffers]
        block = ir.replace(
            self.block,
            axes=(*axes, factor_axis),
            body=reducer.update(terms, self.names.fresh),
            where=guards.conjunction(self._first_guards(env, factor_axis)),
        )
        body: Stmt = block
        for x in reversed(loops):
            body = ir.replace(x, body=body)
        return body

    def _first_guards(self, env: dict[str, arith.Expr], factor_axis: Axis) -> list[ir.Expr]:
        """The guards at the first iteration of the inner loops, without those always true. One on
        the factored loop only is over its axis, and stays valid wherever the block moves."""
        start: dict[str, arith.Expr] = {x.var: arith.Const(0) for x in self.rest}
        own = {x.var for x in self.own} - start.keys() - {self.loop.var}
        kept = []
        for term in guards.over_loops(self.block):
            mentions = guards.free_vars(term)
            on_axis = {self.loop.var: arith.Var(factor_axis.var)}
            term = visit.substitute(term, {**start, **(env if mentions & own else on_axis)})
            kept += [] if self._always(term, factor_axis) else [term]
        return kept

    def _always(self, term: ir.Expr, factor_axis: Axis) -> bool:
        """Is a guard over the factored axis true at all its points?"""
        term = visit.substitute(term, {factor_axis.var: factor_axis.binding})
        match term:
            case ir.Compare(op="lt", a=ir.Index(expr=a), b=ir.Index(expr=b)):
                return self.analyzer.at_most(a + 1, b)
            case ir.Compare(op="ge", a=ir.Index(expr=a), b=ir.Index(expr=b)):
                return self.analyzer.at_most(b, a)
        return False


_KNOWN = (AxisKind.SPATIAL, AxisKind.REDUCE)


def _bound_vars(loops: list[For]) -> set[str]:
    return {v for x in loops for v in arith.free_vars(x.start) | arith.free_vars(x.stop)}

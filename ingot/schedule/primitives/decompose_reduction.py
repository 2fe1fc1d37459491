"""decompose_reduction: a reduction's init becomes a separate block before one of its loops.

    for i, k: Y[i] = 0 at the first k;            for i: Y[i] = 0
              Y[i] += A[i, k]             →       for i, k: Y[i] += A[i, k]

Legal for a loop around the block such that no outer loop feeds the reduction, every loop from it to
the block changes the instance (so nothing is initialised twice), and nothing else in the loop
accesses the output.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import dependences, ir, visit
from ingot.loops.ir import AxisKind, Block, Expr, For, Kernel, LoopKind, Stmt
from ingot.schedule import checks, guards, tree
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.checks import Problem
from ingot.schedule.itermap import IterMap
from ingot.schedule.primitives.base import Result, analyzer_at, put, raise_if
from ingot.schedule.primitives.cache_stage import FreshBlockNames
from ingot.schedule.primitives.recheck import recheck


def decompose_reduction(kernel: Kernel, block: Block, loop: For) -> Result:
    what = f"decompose_reduction({block.name}, {loop.var})"
    raise_if(kernel, block, what, _no_init(block))
    if tree.find(loop.body, block.uid) is None:
        why = f"{loop.var} is not around block {block.name}"
        raise_if(kernel, loop, what, Problem(why, "choose one of its loops"))
    raise_if(kernel, loop, what, _misplaced(kernel, block, loop))
    assert block.init is not None
    start = _init_nest(kernel, block, loop)
    annotations = tuple(sorted({**dict(block.annotations), ir.ACCUMULATES: True}.items()))
    rest = tree.put(loop, block, ir.replace(block, init=None, annotations=annotations))
    new = put(kernel, loop, ir.seq(start, rest))
    recheck(kernel, new, what)
    return new, [dependences.top_blocks(start)[0]]


def _no_init(block: Block) -> Problem | None:
    if block.init is None:
        return Problem(f"block {block.name} has no init", "leave it as it is")
    bad = next((a for a in block.axes if a.kind in (AxisKind.ORDERED, AxisKind.OPAQUE)), None)
    if bad is not None:
        return Problem(f"its axis {bad.var} is {bad.kind.value}", "leave it as it is")
    return None


def _fed(block: Block, kind: AxisKind) -> set[str]:
    return {v for a in block.axes if a.kind is kind for v in arith.free_vars(a.binding)}


def _misplaced(kernel: Kernel, block: Block, loop: For) -> Problem | None:
    outer = [x for x in checks.outer_reduce_loops(kernel, loop, block) if x is not loop]
    if outer:
        why = f"{outer[0].var} outside feeds the reduction, which would be initialised again"
        return Problem(why, f"choose {outer[0].var} or a loop outside it")
    path = tree.path_to(loop, block)
    unsupported = next((s for s in path[:-1] if not isinstance(s, For | ir.Seq | ir.Alloc)), None)
    if unsupported is not None:
        return Problem(f"a {type(unsupported).__name__} is between them", "choose an inner loop")
    loops = [s for s in path if isinstance(s, For)]
    return (
        checks.starts_reduction(kernel, block, loops)
        or _not_injective(kernel, block, loops)
        or _conflicts(block, loop)
        or _mixed_guard(kernel, block, loops)
    )


def _not_injective(kernel: Kernel, block: Block, loops: list[For]) -> Problem | None:
    """Every loop must feed the reduction, or determine the spatial axes injectively."""
    spatial, reduced = _fed(block, AxisKind.SPATIAL), _fed(block, AxisKind.REDUCE)
    analyzer = Analyzer(kernel, tree.loops_above(kernel.body, block))
    points = [a for a in block.axes if a.kind is AxisKind.SPATIAL]
    maps = IterMap([x for x in loops if x.var in spatial], analyzer)
    known = maps.determined([a.binding for a in points], [a.extent for a in points])
    for x in loops:
        if arith.is_const(x.extent, 1):
            continue
        if x.kind not in (LoopKind.SERIAL, LoopKind.UNROLL):
            return Problem(
                f"{x.var} is {x.kind.value}", "decompose before parallel, vectorize or bind"
            )
        if x.var in spatial and x.var in reduced:
            return Problem(f"{x.var} feeds spatial and reduce axes at once", "choose an inner loop")
        if x.var not in reduced and x.var not in known:
            why = f"{x.var} may run block {block.name} again for the same output"
            return Problem(why, f"choose a loop inside {x.var}")
        used = (arith.free_vars(x.start) | arith.free_vars(x.stop)) & {y.var for y in loops}
        if used & reduced:
            return Problem(
                f"the bounds of {x.var} use {min(used & reduced)}", "choose an inner loop"
            )
    return None


def _conflicts(block: Block, loop: For) -> Problem | None:
    assert block.init is not None
    outputs, inputs = visit.written(block.init), visit.read(block.init)
    for other in dependences.top_blocks(loop.body):
        touched = visit.read(other) | visit.written(other)
        if other.uid != block.uid and (outputs & touched or inputs & visit.written(other)):
            why = f"block {other.name} under {loop.var} accesses a buffer of the init"
            return Problem(why, "choose an inner loop")
    return None


def _mixed_guard(kernel: Kernel, block: Block, loops: list[For]) -> Problem | None:
    """Why a guard may skip the first point of the reduction, which the init runs at."""
    fed = _fed(block, AxisKind.REDUCE)
    first = {x.var: x.start for x in loops if x.var in fed}
    analyzer = analyzer_at(kernel, block)
    for term in guards.extra(block, analyzer):
        if guards.free_vars(term) & first.keys() and not _is_proved(
            visit.substitute(term, first), analyzer
        ):
            return Problem("a guard skips part of the reduction", "decompose before that")
    return None


def _is_proved(term: Expr, analyzer: Analyzer) -> bool:
    match term:
        case ir.Compare(op="lt", a=ir.Index(expr=a), b=ir.Index(expr=b)):
            return analyzer.at_most(a + 1, b)
    return False


def _init_nest(kernel: Kernel, block: Block, loop: For) -> Stmt:
    """The init in a nest of copies of the spatial loops."""
    spatial, reduced = _fed(block, AxisKind.SPATIAL), _fed(block, AxisKind.REDUCE)
    path = [s for s in tree.path_to(loop, block) if isinstance(s, For)]
    names = FreshBlockNames(kernel)
    kept = [x for x in path if x.var in spatial]
    loops = [ir.replace(x, var=names.fresh(x.var), uid=ir.fresh_id()) for x in kept]
    env: dict[str, arith.Expr] = {x.var: arith.Var(y.var) for x, y in zip(kept, loops)}
    points = [a for a in block.axes if a.kind is AxisKind.SPATIAL]
    axes = [
        ir.replace(a, var=names.fresh(a.var), binding=arith.substitute(a.binding, env))
        for a in points
    ]
    inside = {a.var: arith.Var(b.var) for a, b in zip(points, axes)}
    inner = reduced & {x.var for x in path}
    where: list[Expr] = [
        visit.substitute(t, env)
        for t in guards.over_loops(block)
        if not guards.free_vars(t) & inner
    ]
    assert block.init is not None
    made: Stmt = Block(
        names.fresh(f"{block.name}_init"),
        tuple(axes),
        visit.substitute(block.init, inside),
        where=guards.conjunction(where),
    )
    for x, original in zip(reversed(loops), reversed(kept)):
        start, stop = (arith.substitute(e, env) for e in (original.start, original.stop))
        made = ir.replace(x, start=start, stop=stop, body=made)
    return made

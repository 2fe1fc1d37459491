"""blockize: a nest around one block becomes a block, whose axes are bound to the outer loops.

    for io: for ii in range(4): block Y(vi = 4*io + ii)
    →  for io: block Y_tile(t = io): for ii in range(4): block Y(vi = 4*t + ii)

Legal when the loop contains perfectly nested loops around one block, and each outer loop feeds axes
of one kind. If outer loops feed the reduction too, its init becomes the tile's, over copies of the
spatial loops.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.ir import Axis, AxisKind, Block, For, Kernel, Stmt
from ingot.schedule import checks, guards, tree
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import Result, nest, put, raise_if
from ingot.schedule.primitives.copies import fresh_block_name, without_init


def blockize(kernel: Kernel, loop: For) -> Result:
    made = make_tile(kernel, loop, f"blockize({loop.var})")
    return put(kernel, loop, made), [made]


def make_tile(kernel: Kernel, loop: For, what: str) -> Block:
    """The block that replaces the nest at `loop`."""
    inner, block = chain_to_block(kernel, loop, what)
    outer = _outer(kernel, loop, inner, block)
    raise_if(kernel, loop, what, checks.expect_serial(loop))
    for x in outer:
        raise_if(kernel, x, what, _mixed(block, x))
    for x in inner:
        raise_if(kernel, x, what, _mixed(block, x))
    names = tree.FreshNames(kernel)
    axes = tuple(_axis(block, x, names) for x in outer)
    env = {x.var: x.start + arith.Var(a.var) for x, a in zip(outer, axes)}
    body = visit.substitute(nest(inner, block), env)
    reduced = [a.var for a in axes if a.kind is AxisKind.REDUCE]
    name = fresh_block_name(kernel, f"{block.name}_tile")
    if not reduced:
        return Block(name, axes, body)
    if block.init is None:
        return without_init(Block(name, axes, body))
    raise_if(kernel, block, what, checks.starts_reduction(kernel, block, outer + inner))
    raise_if(kernel, loop, what, _not_rectangular(block, outer, inner))
    zero = {**env, **{x.var: x.start for x in outer if _kind(block, x) is AxisKind.REDUCE}}
    init = visit.substitute(init_nest(kernel, block, inner, names), zero)
    body = visit.map_stmt(body, lambda s: _without_init(s, block))
    return Block(name, axes, body, init)


def chain_to_block(kernel: Kernel, loop: For, what: str) -> tuple[list[For], Block]:
    """The perfectly nested loops from `loop` inwards, and the block inside them."""
    loops, inside = [loop], loop.body
    while isinstance(inside, For):
        loops.append(inside)
        inside = inside.body
    if not isinstance(inside, Block):
        why = f"{loops[-1].var} contains more than one block"
        raise_if(kernel, loop, what, Problem(why, "choose an inner loop, around one block only"))
    assert isinstance(inside, Block)
    return loops, inside


def _outer(kernel: Kernel, loop: For, inner: list[For], block: Block) -> list[For]:
    """The outer loops whose variables the nest uses."""
    used = {v for a in block.axes for v in arith.free_vars(a.binding)}
    used |= {v for x in inner for e in (x.start, x.stop) for v in arith.free_vars(e)}
    used |= {v for term in guards.over_loops(block) for v in visit.value_vars(term)}
    return [x for x in tree.loops_above(kernel.body, loop) if x.var in used]


def _fed(block: Block, loop: For) -> set[AxisKind]:
    return {a.kind for a in block.axes if loop.var in visit.index_vars(a.binding)}


def _kind(block: Block, loop: For) -> AxisKind:
    return next(iter(_fed(block, loop)), AxisKind.SPATIAL)


def _mixed(block: Block, loop: For) -> Problem | None:
    kinds = sorted(kind.value for kind in _fed(block, loop))
    if len(kinds) < 2:
        return None
    why = f"{loop.var} feeds {' and '.join(kinds)} axes of block {block.name} at once"
    return Problem(why, "blockize before fusing such loops")


def _axis(block: Block, loop: For, names: tree.FreshNames) -> Axis:
    var = names.fresh(f"t{loop.var}")
    return Axis(var, _kind(block, loop), loop.extent, arith.Var(loop.var) - loop.start)


def _not_rectangular(block: Block, outer: list[For], inner: list[For]) -> Problem | None:
    """The init runs over the spatial loops only: their bounds may not depend on the reduction."""
    reduced = {x.var for x in outer + inner if _kind(block, x) is AxisKind.REDUCE}
    for x in inner:
        if (visit.index_vars(x.start) | visit.index_vars(x.stop)) & reduced:
            return Problem(f"the bounds of {x.var} depend on the reduction", "choose an inner loop")
    return None


def init_nest(kernel: Kernel, block: Block, inner: list[For], names: tree.FreshNames) -> Stmt:
    """The block's init as a separate nest, with the guards of the reduction's first point."""
    assert block.init is not None
    spatial = [x for x in inner if _kind(block, x) is not AxisKind.REDUCE]
    starts = {x.var: x.start for x in inner if _kind(block, x) is AxisKind.REDUCE}
    loops = [ir.replace(x, var=names.fresh(x.var), uid=ir.fresh_id()) for x in spatial]
    env = {x.var: arith.Var(y.var) for x, y in zip(spatial, loops)}
    kept = [a for a in block.axes if a.kind is not AxisKind.REDUCE]
    axes = tuple(
        ir.replace(a, var=names.fresh(a.var), binding=arith.substitute(a.binding, env))
        for a in kept
    )
    point = {a.var: arith.Var(b.var) for a, b in zip(kept, axes)}
    terms = [visit.substitute(t, {**starts, **env}) for t in guards.over_loops(block)]
    body = visit.substitute(block.init, point)
    name = fresh_block_name(kernel, f"{block.name}_init")
    return nest(loops, Block(name, axes, body, where=guards.conjunction(terms)))


def _without_init(s: Stmt, block: Block) -> Stmt:
    return without_init(s) if isinstance(s, Block) and s.uid == block.uid else s


def axis_analyzer(kernel: Kernel, block: Block) -> Analyzer:
    """An analyzer with the kernel's sizes and the ranges of the block's axes."""
    analyzer = Analyzer(kernel)
    for axis in block.axes:
        analyzer.add(For(axis.var, arith.Const(0), axis.extent, block.body))
    return analyzer

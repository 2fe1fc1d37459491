"""tensorize: a nest that does what an instruction does becomes a call of it.

    for i: for k in range(4): C[i] += A[i, k] * B[k]
    →  for i: block C_tile(t = i): call(dot4, A[t:t + 1, 0:4], B[0:4], C[t:t + 1])

Legal when the nest, as blockize sees it, matches the instruction's meaning: the same loops, the
same formula, and parameters that are boxes inside their buffers. An accumulating instruction leaves
the init to the tile.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.ir import AxisKind, Block, For, Instruction, Kernel, LoopKind, Stmt
from ingot.schedule import guards, tree
from ingot.schedule.checks import Problem
from ingot.schedule.facts import Facts
from ingot.schedule.matching import Nest, match, nest_of
from ingot.schedule.primitives.base import Result, insist, put
from ingot.schedule.primitives.blockize import axis_facts, init_nest, make_tile
from ingot.schedule.primitives.copies import accumulating


def tensorize(kernel: Kernel, node: For | Block, instruction: Instruction) -> Result:
    name = node.var if isinstance(node, For) else node.name
    what = f"tensorize({name}, {instruction.name})"
    tile = make_tile(kernel, node, what) if isinstance(node, For) else node
    facts = axis_facts(kernel, tile)
    insist(kernel, node, what, _not_plain(tile, facts))
    terms, inner = _without_guards(tile.body)
    wanted = nest_of(instruction.meaning.body)
    assert isinstance(wanted, Nest), "an instruction's meaning has that form"
    first: Stmt | None = None
    if wanted.init is None:
        first, inner = _init_apart(kernel, tile, inner)
    nest = nest_of(inner)
    if isinstance(nest, str):
        insist(kernel, node, what, Problem(nest, "plain loops around one store"))
    assert isinstance(nest, Nest)
    boxes = match(instruction.meaning, nest, facts)
    if isinstance(boxes, str):
        hint = "split and reorder until the nest reads as the instruction's meaning"
        insist(kernel, node, what, Problem(boxes, hint))
    assert not isinstance(boxes, str)
    call = ir.Call(instruction, tuple(boxes[p.name] for p in instruction.meaning.params))
    made = guards.with_guards(ir.replace(tile, body=ir.seq(first, call)), terms)
    return put(kernel, node, made), [made]


def _parts(body: Stmt) -> tuple[list[For], Block | None]:
    """The loops of a tile, and the block inside them."""
    loops = [s for s in visit.walk_stmts(body) if isinstance(s, For)]
    return loops, next(iter(visit.blocks(body)), None)


def _not_plain(tile: Block, facts: Facts) -> Problem | None:
    loops, block = _parts(tile.body)
    marked = next((x for x in loops if x.kind is not LoopKind.SERIAL), None)
    if marked is not None:
        why = f"{marked.var} inside it is marked {marked.kind.value}"
        return Problem(why, "tensorize before marking loops")
    if block is None:
        return None
    odd = next((a for a in block.axes if a.kind in (AxisKind.ORDERED, AxisKind.OPAQUE)), None)
    if odd is not None:
        why = f"axis {odd.var} of block {block.name} is {odd.kind.value}"
        return Problem(why, "an instruction may run its points in any order")
    cutting = [t for t in guards.outside(block) if visit.value_vars(t) & {x.var for x in loops}]
    if cutting:
        why = f"a guard of block {block.name} cuts the tile"
        return Problem(why, 'factors that divide the extent, or tail="peel"')
    starts = {x.var: x.start for x in loops}
    reduced = [a.binding for a in block.axes if a.kind is AxisKind.REDUCE]
    if block.init is None or all(facts.equal(arith.substitute(e, starts), 0) for e in reduced):
        return None
    why = f"the reduction of block {block.name} is not shown to begin here"
    return Problem(why, "a loop around all of the reduction")


def _without_guards(body: Stmt) -> tuple[list[ir.Expr], Stmt]:
    """The guards of the block in a tile, which hold for all of it, and the tile without them."""
    _, block = _parts(body)
    if block is None or block.where is None:
        return [], body
    bare = ir.replace(block, where=None)
    return guards.outside(block), tree.put(body, block, bare)


def _init_apart(kernel: Kernel, tile: Block, inner: Stmt) -> tuple[Stmt | None, Stmt]:
    """The init of the block in a tile as a nest of its own, and the tile that only accumulates."""
    loops, block = _parts(inner)
    if block is None or block.init is None:
        return None, inner
    names = tree.Names(kernel)
    names.taken |= {axis.var for axis in tile.axes}
    return init_nest(kernel, block, loops, names), tree.put(inner, block, accumulating(block))

"""tensorize: a nest that matches an instruction's semantics becomes a call of the instruction.

    for i: for k in range(4): C[i] += A[i, k] * B[k]
    →  for i: block C_tile(t = i): call(dot4, A[t:t + 1, 0:4], B[0:4], C[t:t + 1])

Legal when the blockized nest matches the instruction's meaning: the same loops, the same
expression, and parameters that are boxes inside their buffers. For an accumulating instruction the
init stays with the tile.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.ir import AxisKind, Block, For, Instruction, Kernel, LoopKind, Stmt
from ingot.schedule import guards, tree
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.checks import Problem
from ingot.schedule.matching import Nest, match, nest_of
from ingot.schedule.primitives.base import Result, put, raise_if
from ingot.schedule.primitives.blockize import axis_analyzer, init_nest, make_tile
from ingot.schedule.primitives.copies import without_init


def tensorize(kernel: Kernel, node: For | Block, instruction: Instruction) -> Result:
    name = node.var if isinstance(node, For) else node.name
    what = f"tensorize({name}, {instruction.name})"
    tile = make_tile(kernel, node, what) if isinstance(node, For) else node
    analyzer = axis_analyzer(kernel, tile)
    raise_if(kernel, node, what, _not_plain(tile, analyzer))
    terms, inner = _without_guards(tile.body)
    wanted = nest_of(instruction.meaning.body)
    assert isinstance(wanted, Nest), "an instruction's meaning has a normal form"
    first: Stmt | None = None
    if wanted.init is None:
        first, inner = _split_init(kernel, tile, inner)
    nest = nest_of(inner)
    if isinstance(nest, str):
        raise_if(kernel, node, what, Problem(nest, "plain loops around one store"))
    assert isinstance(nest, Nest)
    for var, extent in nest.loops.items():  # an index like (t * 16 + lane) % 32 needs its ranges
        analyzer.add(For(var, arith.Const(0), extent, tile.body))
    boxes = match(instruction.meaning, nest, analyzer)
    if isinstance(boxes, str):
        hint = "split and reorder until the nest has the loops of the instruction's meaning"
        raise_if(kernel, node, what, Problem(boxes, hint))
    assert not isinstance(boxes, str)
    call = ir.Call(instruction, tuple(boxes[p.name] for p in instruction.meaning.params))
    made = guards.with_guards(ir.replace(tile, body=ir.seq(first, call)), terms)
    return put(kernel, node, made), [made]


def _loops_and_block(body: Stmt) -> tuple[list[For], Block | None]:
    """The loops of a tile, and the block inside them."""
    loops = [s for s in visit.walk_stmts(body) if isinstance(s, For)]
    return loops, next(iter(visit.blocks(body)), None)


def _not_plain(tile: Block, analyzer: Analyzer) -> Problem | None:
    loops, block = _loops_and_block(tile.body)
    not_serial = next((x for x in loops if x.kind is not LoopKind.SERIAL), None)
    if not_serial is not None:
        why = f"{not_serial.var} inside it is {not_serial.kind.value}"
        return Problem(why, "tensorize before parallel, vectorize or unroll")
    if block is None:
        return None
    unsupported = next(
        (a for a in block.axes if a.kind in (AxisKind.ORDERED, AxisKind.OPAQUE)), None
    )
    if unsupported is not None:
        why = f"axis {unsupported.var} of block {block.name} is {unsupported.kind.value}"
        return Problem(why, "tensorize spatial and reduce axes only: instructions have no order")
    partial = [t for t in guards.over_loops(block) if visit.value_vars(t) & {x.var for x in loops}]
    if partial:
        why = f"a guard of block {block.name} makes tiles partial"
        return Problem(why, 'factors that divide the extent, or tail="peel"')
    starts = {x.var: x.start for x in loops}
    reduced = [a.binding for a in block.axes if a.kind is AxisKind.REDUCE]
    if block.init is None or all(analyzer.equal(arith.substitute(e, starts), 0) for e in reduced):
        return None
    why = f"the nest is not proved to start at the first point of the reduction {block.name}"
    return Problem(why, "choose a loop around the whole reduction")


def _without_guards(body: Stmt) -> tuple[list[ir.Expr], Stmt]:
    """The guards of the block in a tile, which are uniform over it, and the tile without them."""
    _, block = _loops_and_block(body)
    if block is None or block.where is None:
        return [], body
    bare = ir.replace(block, where=None)
    return guards.over_loops(block), tree.put(body, block, bare)


def _split_init(kernel: Kernel, tile: Block, inner: Stmt) -> tuple[Stmt | None, Stmt]:
    """The init of the block in a tile as a separate nest, and the tile that only accumulates."""
    loops, block = _loops_and_block(inner)
    if block is None or block.init is None:
        return None, inner
    names = tree.FreshNames(kernel)
    names.taken |= {axis.var for axis in tile.axes}
    return init_nest(kernel, block, loops, names), tree.put(inner, block, without_init(block))

"""vectorize: a loop's iterations become the lanes of vectors.

    for j in range(8): C[i, j] = …   →   the same   [vector]

Legal when the extent is a constant, the iterations are independent and write distinct elements, and
the loop contains only blocks of plain stores and loops around them. Inner loops run for all lanes
together, so their bounds must be uniform. Also legal for the innermost loop of a reduction by a
known operator: a vector of terms is then reduced as a tree.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import dependences, ir, visit
from ingot.loops.ir import For, Kernel, LoopKind
from ingot.schedule import checks, reducers, tree
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import Result, put, raise_if

PLAIN = (ir.Seq, ir.Let, ir.Store, ir.If, ir.For)
OPERATORS = ("add", "mul", "min", "max", "and", "or")  # with a horizontal vector reduction


def vectorize(kernel: Kernel, loop: For) -> Result:
    what = f"vectorize({loop.var})"
    raise_if(kernel, loop, what, checks.expect_serial(loop) or _not_lanes(kernel, loop))
    if not _reduces_lanes(loop):
        raise_if(kernel, loop, what, checks.independent(kernel, loop, private=False))
    return put(kernel, loop, ir.replace(loop, kind=LoopKind.VECTOR)), []


def _reduces_lanes(loop: For) -> bool:
    """Is the loop's body one block that reduces along the loop, and nothing else?"""
    block = loop.body
    if not isinstance(block, ir.Block) or block.where is not None:
        return False
    fed = [a for a in block.axes if loop.var in arith.free_vars(a.binding)]
    reducer = reducers.recognise(block)
    is_known = (
        isinstance(reducer, reducers.Reducer)
        and bool(reducer.ops)
        and set(reducer.ops) <= set(OPERATORS)
    )
    return is_known and bool(fed) and all(a.kind is ir.AxisKind.REDUCE for a in fed)


def _not_lanes(kernel: Kernel, loop: For) -> Problem | None:
    if arith.as_int(loop.extent) is None:
        return Problem(f"its extent {loop.extent} is dynamic", "split it: split(i, None, 8)")
    around = tree.loops_above(kernel.body, loop)
    outer = next((x for x in around if x.kind is LoopKind.VECTOR), None)
    if outer is not None:
        return Problem(f"it is inside {outer.var}, which is vector", "fuse the two loops")
    for s in visit.walk_stmts(loop.body):
        if isinstance(s, For) and s.kind not in (LoopKind.SERIAL, LoopKind.UNROLL):
            return Problem(f"{s.var} inside it is {s.kind.value}", "vectorize one loop of the nest")
        if isinstance(s, For) and loop.var in visit.index_vars(s.start) | visit.index_vars(s.stop):
            why = f"the bounds of {s.var} inside it depend on {loop.var}"
            return Problem(why, "vectorize a loop with uniform inner bounds")
        if isinstance(s, ir.Alloc):
            return Problem(f"{s.buffer.name} is allocated inside it", "vectorize an inner loop")
    for block in dependences.top_blocks(loop.body):
        problem = _not_plain(block, loop)
        if problem is not None:
            return problem
    return None


def _not_plain(block: ir.Block, loop: For) -> Problem | None:
    """Statements of a block without a vector form, and loops that lanes would leave one by one."""
    varying = {a.var for a in block.axes if loop.var in arith.free_vars(a.binding)}
    written = {s.buffer.name for s in visit.stores(block)}
    for part in (block.body, block.init):
        for s in visit.walk_stmts(part) if part is not None else ():
            if not isinstance(s, PLAIN):
                kind = type(s).__name__
                return Problem(f"block {block.name} contains a {kind}", "leave this loop serial")
            if isinstance(s, ir.Let) and _varies(s.value, varying, written):
                varying.add(s.name)
            bounds = [ir.Index(i) for i in (s.start, s.stop)] if isinstance(s, For) else []
            if isinstance(s, For) and any(_varies(i, varying, written) for i in bounds):
                why = f"the bounds of {s.var} in block {block.name} depend on {loop.var}"
                return Problem(why, "vectorize a loop with uniform inner bounds")
    return None


def _varies(e: ir.Expr, varying: set[str], written: set[str]) -> bool:
    """May the value differ from lane to lane? Lets and axes in `varying` do, what the block itself
    writes may."""
    if visit.value_vars(e) & varying:
        return True
    return any(
        (isinstance(x, ir.Ref) and x.name in varying)
        or (isinstance(x, ir.Load) and x.buffer.name in written)
        for x in visit.walk_exprs(e)
    )

"""reindex: a block accesses a buffer indexed by its own axes, in order, through a copy stage.

    for i, r: Y[i] += X[2i + r] * W[r]   →   for i, r: X_reindex[i, r] = X[2i + r]
                                             for i, r: Y[i] += X_reindex[i, r] * W[r]

A guard on the load moves to the stage. Legal when the block accesses the buffer at one index, a
function of its axes only, and either reads it or is its only writer, with a distinct index in each
instance.
"""

from __future__ import annotations

from ingot.loops import ir, visit
from ingot.loops.ir import AxisKind, Block, Buffer, Expr, Kernel, Stmt
from ingot.schedule import guards
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.checks import Problem
from ingot.schedule.itermap import IterMap
from ingot.schedule.primitives.base import Result, analyzer_at, raise_if
from ingot.schedule.primitives.cache_read import read_buffer
from ingot.schedule.primitives.cache_stage import (
    FreshBlockNames,
    find_block,
    insert_stage_after,
    insert_stage_before,
    points,
)
from ingot.schedule.primitives.cache_write import not_sole_writer, written_buffer


def reindex(kernel: Kernel, block: Block, buffer: str) -> Result:
    what = f"reindex({block.name}, {buffer!r})"
    if buffer in visit.written(block):
        return _of_output(kernel, block, buffer, what)
    return _of_input(kernel, block, buffer, what)


def _of_input(kernel: Kernel, block: Block, buffer: str, what: str) -> Result:
    source = read_buffer(kernel, block, buffer, what)
    load = _only_load(kernel, block, source, what)
    axes = _axes_of(kernel, block, load, what)
    if guards.extra(block, analyzer_at(kernel, block)):
        problem = Problem("a guard skips some of its instances", "reindex before splitting")
        raise_if(kernel, block, what, problem)
    names = FreshBlockNames(kernel)
    name = names.fresh(f"{buffer}_reindex")
    made = Buffer(name, source.dtype, tuple(a.extent for a in axes), source.scope)
    own = names.axes(made.shape)
    value = visit.substitute(load, dict(zip((a.var for a in axes), points(own))))
    stage = Block(name, own, ir.Store(made, points(own), value))
    new = _replace_expr(block, load, ir.Load(made, points(axes)))
    done = insert_stage_before(kernel, block, new, stage, made, what)
    return done, [find_block(done, stage.uid)]


def _of_output(kernel: Kernel, block: Block, buffer: str, what: str) -> Result:
    target = written_buffer(kernel, block, buffer, what)
    raise_if(kernel, block, what, not_sole_writer(kernel, block, target))
    store = next(x for x in visit.stores(block.body) if x.buffer.name == buffer)
    axes = [a for a in block.axes if a.kind is AxisKind.SPATIAL]
    loops = [ir.serial(a.var, a.extent, ir.Seq(())) for a in block.axes]
    known = IterMap(loops, Analyzer(kernel, loops)).determined(store.indices, target.shape)
    lost = next((a for a in axes if a.var not in known), None)
    if lost is not None:
        at = ", ".join(map(str, store.indices))
        why = f"its index [{at}] is not proved to be distinct for all {lost.var}"
        raise_if(kernel, block, what, Problem(why, "leave it as it is"))
    names = FreshBlockNames(kernel)
    made = Buffer(
        names.fresh(f"{buffer}_reindex"), target.dtype, tuple(a.extent for a in axes), target.scope
    )
    own = names.axes(made.shape)
    env = dict(zip((a.var for a in axes), points(own)))
    copy = ir.Store(target, store.indices, ir.Load(made, points(axes)))
    stage = Block(names.fresh(f"{buffer}_out"), own, visit.substitute(copy, env))
    done = insert_stage_after(
        kernel, block, _redirected(block, target, made, points(axes)), stage, made, what
    )
    return done, [find_block(done, stage.uid)]


def _only_load(kernel: Kernel, block: Block, source: Buffer, what: str) -> ir.Load:
    found = {x for x in visit.loads(ir.seq(block.init, block.body)) if x.buffer == source}
    if len(found) != 1 or any(x.width > 1 for x in found):
        why = f"block {block.name} reads {source.name} at {len(found)} different indices"
        raise_if(kernel, block, what, Problem(why, "cache_read copies the buffer as it is"))
    return found.pop()


def _axes_of(kernel: Kernel, block: Block, load: ir.Load, what: str) -> list[ir.Axis]:
    """The axes that the load depends on; it may depend on nothing else."""
    used = visit.value_vars(load) - {s.name for s in kernel.sizes}
    axes = [a for a in block.axes if a.var in used]
    inner = used - {a.var for a in axes}
    if inner or any(isinstance(e, ir.Ref) for e in visit.walk_exprs(load)):
        why = f"its index depends on {min(inner, default='a let')}, which is inside the block"
        raise_if(kernel, block, what, Problem(why, "cache_read copies the buffer as it is"))
    return axes


def _replace_expr(block: Block, old: Expr, new: Expr) -> Block:
    def on_expr(e: Expr) -> Expr:
        return new if e == old else e

    init = None if block.init is None else visit.map_stmt(block.init, None, on_expr)
    return ir.replace(block, body=visit.map_stmt(block.body, None, on_expr), init=init)


def _redirected(block: Block, old: Buffer, new: Buffer, point: tuple) -> Block:
    """The block with its accesses of one buffer redirected to another, at `point`."""

    def on_expr(e: Expr) -> Expr:
        if isinstance(e, ir.Load) and e.buffer.name == old.name:
            return ir.replace(e, buffer=new, indices=point)
        return e

    def on_stmt(s: Stmt) -> Stmt:
        if isinstance(s, ir.Store) and s.buffer.name == old.name:
            return ir.replace(s, buffer=new, indices=point)
        return s

    init = None if block.init is None else visit.map_stmt(block.init, on_stmt, on_expr)
    return ir.replace(block, body=visit.map_stmt(block.body, on_stmt, on_expr), init=init)

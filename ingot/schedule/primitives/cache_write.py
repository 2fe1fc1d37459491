"""cache_write: a block writes to another memory scope, and a new stage copies the result out.

    for i, k: Y[i] += A[i, k]   →   for i, k: Y_register[i] += A[i, k]
                                    for i: Y[i] = Y_register[i]

reverse_compute_at moves the copy to where a tile is complete. Legal when the block is the only
writer of the buffer, stores every element of it, indexed by its spatial axes, and reads it only as
its accumulator. Inside a loop around several stages, the tile of one iteration must be complete.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import dependences, ir, visit
from ingot.loops.ir import AxisKind, Block, Buffer, Kernel
from ingot.schedule import checks, guards
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import Result, analyzer_at, raise_if
from ingot.schedule.primitives.cache_read import redirected
from ingot.schedule.primitives.cache_stage import (
    FreshBlockNames,
    copy_block,
    find_block,
    insert_stage_after,
)
from ingot.schedule.primitives.set_scope import check_scopes
from ingot.schedule.primitives.transform_layout import transform_layout


def cache_write(
    kernel: Kernel, block: Block, scope: str = ir.GLOBAL, buffer: str = "", layout: str = ""
) -> Result:
    what = f"cache_write({block.name}, {scope!r})"
    target = written_buffer(kernel, block, buffer, what)
    raise_if(
        kernel,
        block,
        what,
        not_sole_writer(kernel, block, target) or _not_complete(kernel, block, target),
    )
    names = FreshBlockNames(kernel)
    cache = ir.replace(target, name=names.fresh(f"{target.name}_{scope}"), scope=scope)
    stage = copy_block(names, target, cache, names.fresh(f"{target.name}_out"))
    new = insert_stage_after(kernel, block, redirected(block, target, cache), stage, cache, what)
    if layout:
        new, _ = transform_layout(new, cache.name, layout)
    check_scopes(new, what)
    return new, [find_block(new, stage.uid)]


def written_buffer(kernel: Kernel, block: Block, name: str, what: str) -> Buffer:
    """The output buffer of that name, or the only one that the block writes."""
    written = {x.buffer.name: x.buffer for x in visit.stores(block)}
    hidden = visit.written(block) - written.keys()
    if hidden:
        problem = Problem(f"an instruction writes {min(hidden)}", "cache before tensorising")
        raise_if(kernel, block, what, problem)
    if not name and len(written) == 1:
        return next(iter(written.values()))
    if name not in written:
        have = ", ".join(sorted(written)) or "nothing"
        problem = Problem(f"block {block.name} writes {have}", 'name one: buffer="…"')
        raise_if(kernel, block, what, problem)
    return written[name]


def not_sole_writer(kernel: Kernel, block: Block, target: Buffer) -> Problem | None:
    """Why the block is not the only writer of the buffer, or reads more than its accumulator."""
    name = target.name
    others = [b for b in dependences.writers(kernel.body, name) if b.uid != block.uid]
    if others:
        return Problem(f"block {others[0].name} writes {name} too", "keep one writer for a buffer")
    stored = {x.indices for x in visit.stores(block) if x.buffer.name == name}
    if len(stored) > 1 or not checks.always_writes(block, name):
        return Problem(
            f"{block.name} does not store {name} unconditionally at one index", "leave it as it is"
        )
    mine = [x for x in visit.loads(block) if x.buffer.name == name]
    if any(x.indices not in stored for x in mine):
        return Problem(f"it reads other elements of {name} than it writes", "leave it as it is")
    if mine and block.init is None:
        return Problem(f"it reads the previous values of {name}", "leave it as it is")
    if guards.extra(block, analyzer_at(kernel, block)):
        return Problem("a guard skips some of its instances", "cache before splitting the loops")
    return None


def _not_complete(kernel: Kernel, block: Block, target: Buffer) -> Problem | None:
    """Why the block does not store every element, indexed by its own spatial axes."""
    spatial = {a.var: a for a in block.axes if a.kind is AxisKind.SPATIAL}
    store = next(x for x in visit.stores(block.body) if x.buffer.name == target.name)
    used = [i.name for i in store.indices if isinstance(i, arith.Var) and i.name in spatial]
    if len(set(used)) < len(store.indices):
        at = ", ".join(map(str, store.indices))
        why = f"its store {target.name}[{at}] is not indexed by its axes"
        return Problem(why, "reindex the block first")
    analyzer = Analyzer(kernel)
    for name, size in zip(used, target.shape):
        if not analyzer.equal(spatial[name].extent, size):
            why = f"it does not store all of {target.name}: {name} has {spatial[name].extent} of "
            return Problem(why + str(size), "leave it as it is")
    return None

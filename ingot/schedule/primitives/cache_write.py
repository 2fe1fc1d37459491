"""cache_write: a block writes into another memory, and a new stage copies the result out.

    for i, k: Y[i] += A[i, k]   →   for i, k: Y_register[i] += A[i, k]
                                    for i: Y[i] = Y_register[i]

reverse_compute_at brings the copy to where a tile is complete. Legal when the block alone writes
the buffer, stores every element of it at its own spatial axes, and reads it only as its own
accumulator. Inside a loop around several stages, what one iteration makes must be complete there.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import dependences, ir, visit
from ingot.loops.ir import AxisKind, Block, Buffer, Kernel
from ingot.schedule import checks, guards
from ingot.schedule.checks import Problem
from ingot.schedule.facts import Facts
from ingot.schedule.primitives.base import Result, facts_at, insist
from ingot.schedule.primitives.cache_read import redirected
from ingot.schedule.primitives.set_scope import check_scopes
from ingot.schedule.primitives.stages import Names, copy_block, find_block, put_after
from ingot.schedule.primitives.transform_layout import transform_layout


def cache_write(
    kernel: Kernel, block: Block, scope: str = ir.GLOBAL, buffer: str = "", layout: str = ""
) -> Result:
    what = f"cache_write({block.name}, {scope!r})"
    target = written_buffer(kernel, block, buffer, what)
    insist(kernel, block, what, not_own(kernel, block, target) or _not_all(kernel, block, target))
    names = Names(kernel)
    cache = ir.replace(target, name=names.fresh(f"{target.name}_{scope}"), scope=scope)
    stage = copy_block(names, target, cache, names.fresh(f"{target.name}_out"))
    new = put_after(kernel, block, redirected(block, target, cache), stage, cache, what)
    if layout:
        new, _ = transform_layout(new, cache.name, layout)
    check_scopes(new, what)
    return new, [find_block(new, stage.uid)]


def written_buffer(kernel: Kernel, block: Block, name: str, what: str) -> Buffer:
    """The buffer that is meant: the one of that name, or the only one that the block writes."""
    written = {x.buffer.name: x.buffer for x in visit.stores(block)}
    hidden = visit.written(block) - written.keys()
    if hidden:
        problem = Problem(f"an instruction writes {min(hidden)}", "cache before tensorising")
        insist(kernel, block, what, problem)
    if not name and len(written) == 1:
        return next(iter(written.values()))
    if name not in written:
        have = ", ".join(sorted(written)) or "nothing"
        problem = Problem(f"block {block.name} writes {have}", 'name one: buffer="…"')
        insist(kernel, block, what, problem)
    return written[name]


def not_own(kernel: Kernel, block: Block, target: Buffer) -> Problem | None:
    """Does the block alone write the buffer, plainly, and read it only as an accumulator?"""
    name = target.name
    others = [b for b in dependences.writers(kernel.body, name) if b.uid != block.uid]
    if others:
        return Problem(f"block {others[0].name} writes {name} too", "keep one writer for a buffer")
    places = {x.indices for x in visit.stores(block) if x.buffer.name == name}
    if len(places) > 1 or not checks.always_writes(block, name):
        return Problem(f"{block.name} does not store {name} plainly", "leave it as it is")
    mine = [x for x in visit.loads(block) if x.buffer.name == name]
    if any(x.indices not in places for x in mine):
        return Problem(f"it reads {name} at other elements than it writes", "leave it as it is")
    if mine and block.init is None:
        return Problem(f"it reads what {name} held before", "leave it as it is")
    if guards.extra(block, facts_at(kernel, block)):
        return Problem("a guard skips some of its instances", "cache before splitting the loops")
    return None


def _not_all(kernel: Kernel, block: Block, target: Buffer) -> Problem | None:
    """Does the block store every element, at its own spatial axes?"""
    spatial = {a.var: a for a in block.axes if a.kind is AxisKind.SPATIAL}
    store = next(x for x in visit.stores(block.body) if x.buffer.name == target.name)
    used = [i.name for i in store.indices if isinstance(i, arith.Var) and i.name in spatial]
    if len(set(used)) < len(store.indices):
        why = f"it stores {target.name} at {', '.join(map(str, store.indices))}, not at its axes"
        return Problem(why, "reindex the block first")
    facts = Facts(kernel)
    for name, size in zip(used, target.shape):
        if not facts.equal(spatial[name].extent, size):
            why = f"it does not store all of {target.name}: {name} has {spatial[name].extent} of "
            return Problem(why + str(size), "leave it as it is")
    return None

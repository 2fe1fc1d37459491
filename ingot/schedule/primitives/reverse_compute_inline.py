"""reverse_compute_inline: a block's formula goes into the block that makes what it reads.

    for i: Y[i] = X[i] * 2;  for i: Z[i] = Y[i] + 1   →   for i: Z[i] = X[i] * 2 + 1

The producer's loops stay. Legal when the block is one plain store over spatial axes, reads one
intermediate, at its own axes, one to one; that intermediate is made by one plain store, whole, and
read by nobody else; and everything else the block reads is ready before.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import dependences, ir, visit
from ingot.loops.ir import AxisKind, Block, Expr, Kernel
from ingot.schedule import access, guards, tree
from ingot.schedule.checks import Problem
from ingot.schedule.facts import Facts
from ingot.schedule.primitives.base import Result, facts_at, insist, put, with_body
from ingot.schedule.primitives.recheck import recheck


def reverse_compute_inline(kernel: Kernel, block: Block) -> Result:
    what = f"reverse_compute_inline({block.name})"
    insist(kernel, block, what, _not_a_store(kernel, block))
    producer = _producer(kernel, block, what)
    insist(kernel, producer, what, _not_a_store(kernel, producer))
    load = _only_load(kernel, block, producer, what)
    insist(kernel, block, what, _not_one_to_one(kernel, block, load))
    insist(kernel, block, what, _in_the_way(kernel, block, producer, load.buffer.name))
    new = put(kernel, producer, _joined(producer, block, load))
    nest = tree.own_nest(new.body, block)
    new = put(new, nest, None)
    new = with_body(kernel, tree.drop_unused_allocs(new.body))
    recheck(kernel, new, what)
    return new, []


def _not_a_store(kernel: Kernel, block: Block) -> Problem | None:
    store = block.body
    if not isinstance(store, ir.Store) or store.mask is not None or block.init is not None:
        why = f"the body of block {block.name} is not one plain store"
        return Problem(why, "reverse_compute_at moves a block to its producer")
    bad = next((a for a in block.axes if a.kind is not AxisKind.SPATIAL), None)
    if bad is not None:
        why = f"the axis {bad.var} of block {block.name} is {bad.kind.value}"
        return Problem(why, "reverse_compute_at moves a block to its producer")
    if guards.extra(block, facts_at(kernel, block)):
        why = f"a guard skips some instances of block {block.name}"
        return Problem(why, "inline before splitting")
    if store.buffer.name in visit.read(block):
        return Problem(f"block {block.name} reads its own output", "leave it where it is")
    return None


def _producer(kernel: Kernel, block: Block, what: str) -> Block:
    """The one block that makes an intermediate for this one alone."""
    made = [b for b in dependences.producers(kernel.body, block) if _is_for(kernel, b, block)]
    if len(made) != 1:
        why = f"{len(made)} blocks make an intermediate that only block {block.name} reads"
        insist(kernel, block, what, Problem(why, "compute_inline puts a producer into its readers"))
    return made[0]


def _is_for(kernel: Kernel, producer: Block, block: Block) -> bool:
    for name in visit.written(producer):
        if tree.allocated(kernel.body, name) is None:
            return False
        readers = {b.uid for b in dependences.readers(kernel.body, name)}
        writers = {b.uid for b in dependences.writers(kernel.body, name)}
        if readers - {producer.uid} != {block.uid} or writers != {producer.uid}:
            return False
    return True


def _only_load(kernel: Kernel, block: Block, producer: Block, what: str) -> ir.Load:
    (name,) = visit.written(producer)
    found = {x for x in visit.loads(block.body) if x.buffer.name == name}
    load = next(iter(found))
    if len(found) > 1 or load.mask is not None or load.width > 1:
        why = f"it reads {name} at several places, or under a guard"
        insist(kernel, block, what, Problem(why, "compute_inline puts a producer into its readers"))
    return load


def _not_one_to_one(kernel: Kernel, block: Block, load: ir.Load) -> Problem | None:
    """Does every element of the intermediate give one instance of the block, and the reverse?"""
    axes = {a.var: a for a in block.axes}
    used = [i.name for i in load.indices if isinstance(i, arith.Var) and i.name in axes]
    if len(used) < len(load.indices) or sorted(used) != sorted(axes):
        at = ", ".join(map(str, load.indices))
        why = f"it reads {load.buffer.name} at [{at}], which is not each of its axes once"
        return Problem(why, "reverse_compute_at, or compute_inline the producer")
    facts = Facts(kernel)
    for name, size in zip(used, load.buffer.shape):
        if not facts.equal(axes[name].extent, size):
            why = f"it reads {axes[name].extent} of {size} elements of {load.buffer.name}"
            return Problem(why, "compute_inline puts a producer into its readers")
    return None


def _in_the_way(kernel: Kernel, block: Block, producer: Block, through: str) -> Problem | None:
    """What the block touches must not change between the producer and the block."""
    store = producer.body
    assert isinstance(store, ir.Store)
    spatial = {arith.Var(a.var) for a in producer.axes}
    if set(store.indices) != spatial or len(store.indices) != len(producer.axes):
        why = f"block {producer.name} does not store at exactly its own axes"
        return Problem(why, "reverse_compute_at moves a block to its producer")
    places = tree.order(kernel.body)
    reads, writes = visit.read(block) - {through}, visit.written(block)
    around = {x.uid for x in tree.loops_above(kernel.body, producer)}
    for other in dependences.top_blocks(kernel.body):
        if other.uid in (block.uid, producer.uid) or places[other.uid] > places[block.uid]:
            continue
        together = any(x.uid in around for x in tree.loops_above(kernel.body, other))
        if places[other.uid] < places[producer.uid] and not together:
            continue
        touched = {a.buffer.name for a in access.of_block(other)}
        clash = (visit.written(other) & (reads | writes)) | (touched & writes)
        if clash:
            why = f"block {other.name} touches {min(clash)} between the two"
            return Problem(why, f"move {other.name} first")
    return None


def _joined(producer: Block, block: Block, load: ir.Load) -> Block:
    """The producer, storing what the block makes of its value."""
    made, used = producer.body, block.body
    assert isinstance(made, ir.Store) and isinstance(used, ir.Store)
    env = {i.name: e for i, e in zip(load.indices, made.indices) if isinstance(i, arith.Var)}
    moved = visit.substitute(load, env)

    def on_expr(e: Expr) -> Expr:
        return made.value if e == moved else e

    store = visit.map_stmt(visit.substitute(used, env), None, on_expr)
    return ir.replace(producer, name=block.name, body=store)

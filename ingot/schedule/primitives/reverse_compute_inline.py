"""reverse_compute_inline: inline a block's expression into its producer.

    for i: Y[i] = X[i] * 2;  for i: Z[i] = Y[i] + 1   →   for i: Z[i] = X[i] * 2 + 1

The producer's loops stay. Legal when the block is one plain store over spatial axes and reads one
intermediate, indexed by its own axes, one to one; one plain store writes that whole intermediate,
and no other block reads it; and everything else that the block reads is computed before.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import dependences, ir, visit
from ingot.loops.ir import AxisKind, Block, Expr, Kernel
from ingot.schedule import access, guards, tree
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import Result, analyzer_at, put, raise_if, with_body
from ingot.schedule.primitives.recheck import recheck


def reverse_compute_inline(kernel: Kernel, block: Block) -> Result:
    what = f"reverse_compute_inline({block.name})"
    raise_if(kernel, block, what, _not_a_store(kernel, block))
    producer = _producer(kernel, block, what)
    raise_if(kernel, producer, what, _not_a_store(kernel, producer))
    load = _only_load(kernel, block, producer, what)
    raise_if(kernel, block, what, _not_one_to_one(kernel, block, load))
    raise_if(kernel, block, what, _conflicts(kernel, block, producer, load.buffer.name))
    new = put(kernel, producer, _inlined(producer, block, load))
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
    if guards.extra(block, analyzer_at(kernel, block)):
        why = f"a guard skips some instances of block {block.name}"
        return Problem(why, "inline before splitting")
    if store.buffer.name in visit.read(block):
        return Problem(f"block {block.name} reads its own output", "leave it where it is")
    return None


def _producer(kernel: Kernel, block: Block, what: str) -> Block:
    """The only block that writes an intermediate which only this block reads."""
    made = [
        b for b in dependences.producers(kernel.body, block) if _is_read_only_by(kernel, b, block)
    ]
    if len(made) != 1:
        why = f"{len(made)} blocks write an intermediate that only block {block.name} reads"
        raise_if(
            kernel, block, what, Problem(why, "compute_inline puts a producer into its readers")
        )
    return made[0]


def _is_read_only_by(kernel: Kernel, producer: Block, block: Block) -> bool:
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
        why = f"it reads {name} at several indices, or under a guard"
        raise_if(
            kernel, block, what, Problem(why, "compute_inline puts a producer into its readers")
        )
    return load


def _not_one_to_one(kernel: Kernel, block: Block, load: ir.Load) -> Problem | None:
    """Why elements of the intermediate and instances of the block are not one to one."""
    axes = {a.var: a for a in block.axes}
    used = [i.name for i in load.indices if isinstance(i, arith.Var) and i.name in axes]
    if len(used) < len(load.indices) or sorted(used) != sorted(axes):
        at = ", ".join(map(str, load.indices))
        why = f"it reads {load.buffer.name} at [{at}], which does not use each of its axes once"
        return Problem(why, "reverse_compute_at, or compute_inline the producer")
    analyzer = Analyzer(kernel)
    for name, size in zip(used, load.buffer.shape):
        if not analyzer.equal(axes[name].extent, size):
            why = f"it reads {axes[name].extent} of {size} elements of {load.buffer.name}"
            return Problem(why, "compute_inline puts a producer into its readers")
    return None


def _conflicts(kernel: Kernel, block: Block, producer: Block, through: str) -> Problem | None:
    """Why what the block accesses may change between the producer and the block."""
    store = producer.body
    assert isinstance(store, ir.Store)
    spatial = {arith.Var(a.var) for a in producer.axes}
    if set(store.indices) != spatial or len(store.indices) != len(producer.axes):
        why = f"the store of block {producer.name} is not indexed by exactly its own axes"
        return Problem(why, "reverse_compute_at moves a block to its producer")
    position = tree.block_order(kernel.body)
    reads, writes = visit.read(block) - {through}, visit.written(block)
    around = {x.uid for x in tree.loops_above(kernel.body, producer)}
    for other in dependences.top_blocks(kernel.body):
        if other.uid in (block.uid, producer.uid) or position[other.uid] > position[block.uid]:
            continue
        together = any(x.uid in around for x in tree.loops_above(kernel.body, other))
        if position[other.uid] < position[producer.uid] and not together:
            continue
        touched = {a.buffer.name for a in access.of_block(other)}
        clash = (visit.written(other) & (reads | writes)) | (touched & writes)
        if clash:
            why = f"block {other.name} accesses {min(clash)} between the two"
            return Problem(why, f"move {other.name} first")
    return None


def _inlined(producer: Block, block: Block, load: ir.Load) -> Block:
    """The producer, with the block's expression around its value."""
    made, used = producer.body, block.body
    assert isinstance(made, ir.Store) and isinstance(used, ir.Store)
    env = {i.name: e for i, e in zip(load.indices, made.indices) if isinstance(i, arith.Var)}
    moved = visit.substitute(load, env)

    def on_expr(e: Expr) -> Expr:
        return made.value if e == moved else e

    store = visit.map_stmt(visit.substitute(used, env), None, on_expr)
    return ir.replace(producer, name=block.name, body=store)

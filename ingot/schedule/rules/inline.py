"""Rule: inline element-wise producers into their consumers where that does not repeat work.

In: a schedule with one nest per block. Out: the same with fewer blocks. First step of every
family's rule.
"""

from __future__ import annotations

from collections.abc import Collection

from ingot.loops import ir, visit
from ingot.loops.ir import Expr, Load
from ingot.schedule.handles import BlockRef
from ingot.schedule.rules.block_info import (
    BlockInfo,
    block_infos,
    index_vars,
    intermediates,
    math_count,
    node_count,
    plain_index,
    reads_at_axes,
)
from ingot.schedule.schedule import Schedule

MAX_GROWTH = 400  # expression nodes that the copies of one value may add; heuristic
MAX_RECOMPUTED_NODES = 8  # expression nodes that may be recomputed per element; heuristic


def inline_elementwise(sch: Schedule, keep: Collection[BlockRef] = ()) -> None:
    """Inline every element-wise intermediate that is cheap to recompute, except those in `keep`."""
    for ref in [s.ref for s in block_infos(sch) if s.ref not in keep]:
        info = BlockInfo(ref, sch.at_block(ref))
        if is_worth_inlining(sch, info):
            with sch.attempt(ref):
                sch.compute_inline(ref)


def is_worth_inlining(sch: Schedule, info: BlockInfo) -> bool:
    if not info.is_elementwise or not info.outputs <= intermediates(sch):
        return False
    value = stored_value(info)
    uses = [(c, x) for c in block_infos(sch) for x in _uses(c, info)]
    if not uses:
        return False
    if len(uses) > 1 and len(uses) * node_count(value) > MAX_GROWTH:
        return False
    distinct = {(c.ref.uid, x.indices) for c, x in uses}
    if math_count(value) and len(distinct) > 1:
        return False
    has_reduction = any(s.is_reduction for s in block_infos(sch))
    return all(_fits(info, value, c, x, has_reduction) for c, x in uses)


def stored_value(info: BlockInfo) -> Expr:
    store = info.block.body
    assert isinstance(store, ir.Store)
    return store.value


def _uses(consumer: BlockInfo, producer: BlockInfo) -> list[Load]:
    wanted = producer.outputs & visit.read(consumer.block)
    return [x for x in visit.loads(consumer.block) if x.buffer.name in wanted] if wanted else []


def _fits(
    info: BlockInfo, value: Expr, consumer: BlockInfo, load: Load, has_reduction: bool
) -> bool:
    """Does this load read each element once, or is the value cheap to recompute?"""
    read = {name for i in load.indices for name in index_vars(i)}
    repeats = any(a.var not in read for a in consumer.block.axes if a.extent != 1)
    if not repeats and consumer.is_elementwise:
        return True
    if consumer.reduced and _is_guarded(value):
        return False  # the guard would be in the innermost loop
    if not repeats:
        return not math_count(value) and node_count(value) <= MAX_GROWTH
    if consumer.reduced and is_widening(value) and _has_rows(consumer, read):
        return False  # a conversion for each element of a tile, again for each panel
    if is_movement(value):
        return not consumer.reduced or keeps_contiguous(info, value) or reads_at_axes(consumer)
    return not has_reduction and not math_count(value) and node_count(value) <= MAX_RECOMPUTED_NODES


def _is_guarded(value: Expr) -> bool:
    return any(isinstance(e, Load) and e.mask is not None for e in visit.walk_exprs(value))


def is_movement(value: Expr) -> bool:
    """Is the value a load, maybe cast, or a constant?"""
    while isinstance(value, ir.Cast):
        value = value.a
    return isinstance(value, Load | ir.Lit) and not _is_guarded(value)


def is_widening(value: Expr) -> bool:
    """Is the value a narrow float that is converted?"""
    return isinstance(value, ir.Cast) and value.a.dtype.is_float and value.a.dtype.bits < 32


def _has_rows(consumer: BlockInfo, read: set[str]) -> bool:
    """Do several elements of the output read different elements of the operand?"""
    return any(a.var in read and a.extent != 1 for a in consumer.spatial)


def keeps_contiguous(info: BlockInfo, value: Expr) -> bool:
    """Is the load contiguous along the axis that the store is contiguous along?"""
    store = info.block.body
    assert isinstance(store, ir.Store)
    loads = [e for e in visit.walk_exprs(value) if isinstance(e, Load)]
    if not loads or not store.indices:
        return True
    last = loads[0].indices[-1:]
    return all(plain_index(info.block, i) == store.indices[-1] for i in last)

"""Rule: producers go into their consumers where that does not repeat work.

In: a schedule whose stages are nests of their own. Out: the same with fewer stages. First step of
every family's rule.
"""

from __future__ import annotations

from collections.abc import Collection

from ingot.loops import ir, visit
from ingot.loops.ir import Expr, Load
from ingot.schedule.handles import BlockRef
from ingot.schedule.rules.stages import (
    Stage,
    index_vars,
    intermediates,
    math_count,
    node_count,
    plain_index,
    reads_axes,
    stages,
)
from ingot.schedule.schedule import Schedule

MAX_GROWTH = 400  # nodes that copies of one formula may add
CHEAP = 8  # nodes of a formula that may be worked out again for each element


def inline_maps(sch: Schedule, keep: Collection[BlockRef] = ()) -> None:
    """Inline every intermediate map that costs nothing to repeat, but for those to keep."""
    for ref in [s.ref for s in stages(sch) if s.ref not in keep]:
        stage = Stage(ref, sch.at_block(ref))
        if is_worth_inlining(sch, stage):
            with sch.attempt():
                sch.compute_inline(ref)


def is_worth_inlining(sch: Schedule, stage: Stage) -> bool:
    if not stage.is_map or not stage.outputs <= intermediates(sch):
        return False
    value = formula(stage)
    uses = [(c, x) for c in stages(sch) for x in _uses(c, stage)]
    if not uses:
        return False
    if len(uses) > 1 and len(uses) * node_count(value) > MAX_GROWTH:
        return False
    places = {(c.ref.uid, x.indices) for c, x in uses}
    if math_count(value) and len(places) > 1:
        return False
    has_reduction = any(s.is_reduction for s in stages(sch))
    return all(_fits(stage, value, c, x, has_reduction) for c, x in uses)


def formula(stage: Stage) -> Expr:
    store = stage.block.body
    assert isinstance(store, ir.Store)
    return store.value


def _uses(consumer: Stage, producer: Stage) -> list[Load]:
    wanted = producer.outputs & visit.read(consumer.block)
    return [x for x in visit.loads(consumer.block) if x.buffer.name in wanted] if wanted else []


def _fits(stage: Stage, value: Expr, consumer: Stage, load: Load, has_reduction: bool) -> bool:
    """Is each element read once by this load, or is the formula free to repeat?"""
    read = {name for i in load.indices for name in index_vars(i)}
    repeats = any(a.var not in read for a in consumer.block.axes if a.extent != 1)
    if not repeats and consumer.is_map:
        return True
    if consumer.reduced and _is_guarded(value):
        return False  # the guard would stand in the innermost loop
    if not repeats:
        return not math_count(value) and node_count(value) <= MAX_GROWTH
    if is_movement(value):
        return not consumer.reduced or keeps_contiguous(stage, value) or reads_axes(consumer)
    return not has_reduction and not math_count(value) and node_count(value) <= CHEAP


def _is_guarded(value: Expr) -> bool:
    return any(isinstance(e, Load) and e.mask is not None for e in visit.walk_exprs(value))


def is_movement(value: Expr) -> bool:
    """A load, maybe converted, or a constant."""
    while isinstance(value, ir.Cast):
        value = value.a
    return isinstance(value, Load | ir.Lit) and not _is_guarded(value)


def keeps_contiguous(stage: Stage, value: Expr) -> bool:
    """Is what the stage loads contiguous along what it stores contiguously?"""
    store = stage.block.body
    assert isinstance(store, ir.Store)
    loads = [e for e in visit.walk_exprs(value) if isinstance(e, Load)]
    if not loads or not store.indices:
        return True
    last = loads[0].indices[-1:]
    return all(plain_index(stage.block, i) == store.indices[-1] for i in last)

"""Rule: look-ups in a table of 256 bytes, by the target's instruction (schedule/look_up.py).

    for i: C[i] = T[A[i]]   →   for blocks (parallel): look_up(T, A[block], C[block]); the remainder

In: an element-wise nest of one such store, contiguous along its last loop. Out: whether it was
scheduled; a remainder is a nest of its own, of scalar loads, as all of it is on other targets.
Called by elementwise.py.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.arith.bounds import Interval, bounds_of
from ingot.arith.simplify import simplify
from ingot.loops import ir, visit
from ingot.schedule.handles import LoopRef
from ingot.schedule.look_up import TABLE, byte_look_up
from ingot.schedule.rules.block_info import BlockInfo, own_loops
from ingot.schedule.schedule import Schedule
from ingot.target import Target


def schedule_byte_lookup(
    sch: Schedule, target: Target, info: BlockInfo, loop: LoopRef, is_big: bool
) -> bool:
    source = _source(info)
    made = None if source is None else byte_look_up(target, source.dtype, info.dtype)
    if made is None:
        return False
    lanes = arith.as_int(made.meaning.params[-1].shape[0]) or 0
    if _is_shorter(sch, loop, lanes):
        return False  # a remainder too, whose length may be dynamic
    done, around = False, [x for x in own_loops(sch, info.ref) if x != loop]
    with sch.attempt(info.ref, ir.SCALAR_CODE):
        blocks, inner = sch.split(loop, None, lanes, tail="peel")
        sch.tensorize(inner, made)
        done = True
    if done and is_big:
        with sch.attempt(info.ref, ir.SERIAL_LOOPS):
            sch.parallel(around[0] if around else blocks)
    return done


def _is_shorter(sch: Schedule, loop: LoopRef, lanes: int) -> bool:
    """Has the loop fewer iterations than that, whatever the sizes are?"""
    sizes = {size.name: Interval(size.low, size.high) for size in sch.kernel.sizes}
    most = bounds_of(simplify(sch.at_loop(loop).extent, sizes), sizes).high
    return most is not None and most < lanes


def _source(info: BlockInfo) -> ir.Load | None:
    """The byte whose value is the only index of the loaded table."""
    store = info.block.body
    if not isinstance(store, ir.Store) or not isinstance(store.value, ir.Load):
        return None
    table = store.value
    is_table = table.mask is None and [arith.as_int(n) for n in table.buffer.shape] == [TABLE]
    if not is_table or table.dtype.bits != 8:
        return None
    (index,) = table.indices
    values = list(visit.opaque_values(index))
    loads = [x for value in values for x in visit.walk_exprs(value) if isinstance(x, ir.Load)]
    if not isinstance(index, arith.Opaque) or len(loads) != 1 or loads[0].mask is not None:
        return None
    return loads[0] if loads[0].dtype.is_int and loads[0].dtype.bits == 8 else None

"""Rule: a reduction of a whole tensor to one value: the extrema of a tensor that is quantised.

    for chunks (parallel): partial[chunk] = combine over the chunk, in vectors;  then over chunks

In: a nest around one reduction without spatial axes, its elements one row, or a dynamic number of
rows (lower/merge_axes.py). The chunks do not depend on the number of threads, so that no bit of the
result does. Called by rules/families.py.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.cost.shape import PARALLEL_WORK
from ingot.loops import ir
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.block_info import (
    BlockInfo,
    block_info_of,
    elements,
    extent,
    loop_of,
    own_loops,
)
from ingot.schedule.rules.explain import too_small
from ingot.schedule.rules.roles import is_contiguous
from ingot.schedule.rules.row_reduction import (
    PARTIAL_VECTORS,
    rfactor_lanes,
    vectorize_final_reduction,
)
from ingot.schedule.schedule import Schedule
from ingot.support.errors import IngotError
from ingot.target import Target

MAX_CHUNK = 16 << 10  # elements of a chunk; half of it takes some µs from L2; heuristic
MIN_CHUNK = 1 << 10  # the last step of a chunk, over lanes, then costs a tenth; heuristic
MIN_ROW = 256  # elements of a row of constant length that is a chunk; heuristic


def is_whole_reduction(info: BlockInfo) -> bool:
    """Is it one value, combined from contiguous elements?"""
    if info.spatial or not info.is_reduction or not info.loads:
        return False
    return all(is_contiguous(info, x, info.reduced[-1]) for x in info.loads)


def schedule_whole_reduction(sch: Schedule, target: Target, info: BlockInfo) -> list[BlockRef]:
    """Schedule the nest; the blocks that are done, none if a step was refused."""
    done: list[BlockRef] = []
    with sch.attempt(info.ref, ir.SCALAR_CODE):
        part, serial = _chunked(sch, target, info)
        lanes = rfactor_lanes(sch, target, block_info_of(sch, part), PARTIAL_VECTORS)
        if lanes is None and part != info.ref:
            raise IngotError("bad-schedule", "whole reduction: no vectors along its rows")
        blocks = [info.ref, part] if lanes is None else [info.ref, part, lanes]
        for ref in (info.ref, lanes) if serial else ():
            if ref is not None:
                sch.remark(ref, ir.SERIAL_LOOPS, serial)
        for about in () if serial else (ir.SERIAL_LOOPS, ir.SCALAR_CODE):
            sch.remark(info.ref, about, "combines the results of the chunks, which are few")
        if lanes is not None:
            _schedule_parts(sch, target, part, lanes, None if part == info.ref else info.ref)
        done = blocks
    return done


def _chunked(sch: Schedule, target: Target, info: BlockInfo) -> tuple[BlockRef, str]:
    """The reduction of one chunk, split from the whole; or the whole and the reason: it is short or
    has no chunks of equal length."""
    count = elements(sch, info)
    if count is not None and count < 2 * PARALLEL_WORK:
        return info.ref, too_small(count)
    *rows, last = _long_loops(sch, info)
    if rows:  # a dynamic number of them
        return sch.rfactor(sch.fuse(*rows) if len(rows) > 1 else rows[0]), ""
    step = PARTIAL_VECTORS * target.lanes(info.dtype)
    chunk = _chunk(count, step) or _multiple(sch.at_loop(last).extent, step)
    if chunk is None:
        return info.ref, "no chunks of equal length"
    return sch.rfactor(sch.split(last, None, chunk)[0]), ""


def _chunk(count: int | None, step: int) -> int | None:
    """The longest chunk of whole steps that divides the row."""
    if count is None:
        return None
    lengths = range(MAX_CHUNK - MAX_CHUNK % step, MIN_CHUNK - 1, -step)
    return next((n for n in lengths if count % n == 0), None)


def _multiple(count: arith.Expr, step: int) -> int | None:
    """The number of which a dynamic count is a multiple, if that is whole steps."""
    match count:
        case arith.Mul(a=arith.Const(value=n)) | arith.Mul(b=arith.Const(value=n)):
            return n if n % step == 0 and n >= MIN_ROW else None
    return None


def _long_loops(sch: Schedule, info: BlockInfo) -> list[LoopRef]:
    """The loops of the nest, the innermost and those of several iterations."""
    *rows, last = (loop for a in info.reduced if (loop := loop_of(sch, info, a)) is not None)
    return [*(x for x in rows if extent(sch, x) != 1), last]


def _schedule_parts(
    sch: Schedule, target: Target, part: BlockRef, lanes: BlockRef, whole: BlockRef | None
) -> None:
    if whole is not None:
        chunk = own_loops(sch, part)[0]
        sch.compute_at(lanes, chunk)
        sch.parallel(chunk)
    _accumulate(sch, target, lanes)
    vectorize_final_reduction(sch, target, block_info_of(sch, part), own_loops(sch, part)[-1])
    if whole is not None:
        sch.set_scope(lanes, ir.THREAD)


def _accumulate(sch: Schedule, target: Target, lanes: BlockRef) -> None:
    """Some vectors of partial results, combined with each step of the row."""
    info = block_info_of(sch, lanes)
    lane = _lane_loop(sch, info)
    if info.reduced:  # else the vectors are the whole row
        sch.reorder(_loop(sch, info, info.reduced[-1]), lane)
    vectors, inner = sch.split(lane, None, target.lanes(info.dtype))
    sch.unroll(vectors)
    sch.vectorize(inner)


def _lane_loop(sch: Schedule, info: BlockInfo) -> LoopRef:
    """The longer one of the spatial loops: chunks have been moved out."""
    loops = [x for a in info.spatial if (x := loop_of(sch, info, a)) is not None]
    return max(loops, key=lambda x: extent(sch, x) or 0)


def _loop(sch: Schedule, info: BlockInfo, axis: ir.Axis) -> LoopRef:
    loop = loop_of(sch, info, axis)
    assert loop is not None, "each axis of the block has a loop"
    return loop

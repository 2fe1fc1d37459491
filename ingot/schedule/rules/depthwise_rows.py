"""Apply: depthwise convolutions of row-major maps, with vector lanes along the columns.

    for channels (parallel): copy the channel's map, with its zero padding and room for whole tiles
        for tiles of rows: for vectors of columns:
            for columns of the window: for maps, rows, rows of the window (unrolled): for lanes
            the epilogue

With the rows of the window unrolled inside the rows of the tile, each input row is loaded once for
the output rows that it is part of, and the weights of one column stay in registers: LLVM merges the
equal loads. Where maps are small, a thread copies several before it convolves them, and a tile has
two. In: a depthwise window and its plan (cost/depthwise_rows.py). Out: the loop to parallelise; a
refused step is an error.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.arith.affine import coefficient
from ingot.cost.plan import ContractionPlan
from ingot.loops import ir
from ingot.loops.ir import Load
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.block_info import (
    BlockInfo,
    block_info_of,
    block_infos,
    loop_of,
    own_loops,
)
from ingot.schedule.rules.contraction import k_axes
from ingot.schedule.rules.elementwise import vectorize_and_unroll, vectorize_loop
from ingot.schedule.rules.micro_kernel import unroll_k
from ingot.schedule.rules.roles import batch_loops, depends_on
from ingot.schedule.schedule import Schedule
from ingot.support.errors import IngotError
from ingot.target import Target


def apply_depthwise_rows(
    sch: Schedule, target: Target, info: BlockInfo, plan: ContractionPlan, consumer: BlockRef | None
) -> LoopRef:
    copy = _copy_of_map(sch, info, plan)
    if consumer is None:  # the padding of a tile may not be stored to an output
        consumer = sch.cache_write(info.ref)
    sch.pad(info.ref, *_multiples(info, plan))
    parallel_loop, panel = _tile(sch, block_info_of(sch, info.ref), plan)
    sch.compute_at(copy, parallel_loop)
    vectorize_and_unroll(sch, target, copy, is_short=False)
    sch.reverse_compute_at(consumer, panel)
    _unroll_epilogue(sch, target, consumer)
    return parallel_loop


def _multiples(info: BlockInfo, plan: ContractionPlan) -> list[int]:
    """What the block's axes are padded to multiples of."""
    assert plan.tile is not None
    wanted = {plan.rows: plan.tile.rows, plan.lanes: plan.tile.columns}
    return [wanted.get(i, 1) for i in range(len(info.block.axes))]


def _copy_of_map(sch: Schedule, info: BlockInfo, plan: ContractionPlan) -> BlockRef:
    """The block that makes the sliding operand, padded for whole tiles."""
    axes = [info.block.axes[i] for i in (plan.rows, plan.lanes) if i is not None]
    sliding = [x for x in info.loads if all(depends_on(x, a) for a in axes)]
    if len(axes) != 2 or len(sliding) != 1:
        raise IngotError("bad-schedule", "depthwise_rows: not one operand slides over the map")
    (load,) = sliding
    makers = [s for s in block_infos(sch) if load.buffer.name in s.outputs]
    if any(not s.is_elementwise for s in makers) or len(makers) > 1:
        raise IngotError("bad-schedule", "depthwise_rows: no element-wise block makes the input")
    copy = makers[0].ref if makers else sch.cache_read(info.ref, load.buffer.name)
    sch.pad(copy, *_room(info, plan, load), beyond="zero")
    return copy


def _room(info: BlockInfo, plan: ContractionPlan, load: Load) -> list[int]:
    """The sizes of the sliding operand that whole tiles read; 1 where it need not grow."""
    axes = list(zip(info.block.axes, _multiples(info, plan)))
    found = []
    for index, size in zip(load.indices, load.buffer.shape):
        last = 0
        for axis, multiple in axes:
            stride = arith.as_int(coefficient(index, axis.var) or arith.Const(0)) or 0
            count = arith.as_int(axis.extent) or 1
            last += stride * (-(-count // multiple) * multiple - 1)
        have = arith.as_int(size)
        found.append(1 if have is None or last < have else last + 1)
    return found


def _tile(sch: Schedule, info: BlockInfo, plan: ContractionPlan) -> tuple[LoopRef, LoopRef]:
    """Split, order and unroll the block's loops; the loop over channels and the one over tiles."""
    assert plan.tile is not None and plan.blocking is not None
    count, maps = plan.blocking.sizes
    rows, lanes = (loop_of(sch, info, info.block.axes[i or 0]) for i in (plan.rows, plan.lanes))
    k = [x for x in (loop_of(sch, info, a) for a in k_axes(info, plan)) if x is not None]
    outer = [x for x in own_loops(sch, info.ref) if x not in (*k, rows, lanes)]
    channels = next(iter(batch_loops(sch, info, outer)), None)
    if rows is None or lanes is None or channels is None or not k:
        raise IngotError("bad-schedule", "depthwise_rows: an axis has no loop")
    copies, within, together = sch.split(channels, None, count // maps, maps)
    row_tile, row = sch.split(rows, None, plan.tile.rows)
    panel, vectors, lane = sch.split(lanes, None, plan.tile.vectors, plan.tile.lanes)
    columns, taps = (k[:-1], k[-1:]) if plan.k_unroll > 1 else (k, [])
    outer = [*(x for x in outer if x != channels), copies]
    sch.reorder(
        *outer, within, row_tile, panel, *columns, together, row, *taps, vectors, lane
    )  # fmt: skip
    sch.vectorize(lane)
    for loop in (together, row, vectors):
        sch.unroll(loop)
    for loop in taps:
        unroll_k(sch, loop, plan.k_unroll)
    return (sch.fuse(*outer) if len(outer) > 1 else outer[0]), panel


def _unroll_epilogue(sch: Schedule, target: Target, consumer: BlockRef) -> None:
    """Unrolled whatever its length: an accumulator that is indexed by a loop is in memory."""
    *loops, last = own_loops(sch, consumer)
    for loop in (*loops, *vectorize_loop(sch, target, block_info_of(sch, consumer), last)):
        if sch.at_loop(loop).kind is ir.LoopKind.SERIAL:
            sch.unroll(loop)

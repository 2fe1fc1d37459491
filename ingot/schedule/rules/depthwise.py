"""Apply: depthwise convolutions: the loop order around the register tile, and where the input is
padded.

    for blocks of channels (parallel): copy the block of the image, with its zero padding
        for tiles of a row: for rows: for channels of the block

With channels innermost over the whole pixel, the weights of a 5 × 5 window leave the L1 cache from
tile to tile, and each input element is loaded from L2 once for every row of the window. With blocks
of few channels and rows inside, the input rows of one output row stay in L1 for the next. Pixels at
a stride of a large power of two share cache sets; those of a thread's copy are adjacent. Called by
contraction.py; cost/depthwise.py chooses the channels of a block.
"""

from __future__ import annotations

from ingot.cost.plan import ContractionPlan
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.block_info import BlockInfo, block_infos
from ingot.schedule.rules.elementwise import vectorize_and_unroll
from ingot.schedule.rules.roles import depends_on
from ingot.schedule.schedule import Schedule
from ingot.support.errors import IngotError
from ingot.target import Target


def channel_blocks(
    sch: Schedule, rest: list[LoopRef], row_tile: LoopRef, panel: LoopRef, size: int
) -> list[LoopRef]:
    """The loops around a tile, with blocks of `size` panels outside the rows of the image."""
    blocks, within = sch.split(panel, None, size)
    return [*rest[:-1], blocks, row_tile, *rest[-1:], within]


def copy_input_per_block(
    sch: Schedule, target: Target, info: BlockInfo, plan: ContractionPlan, loops: list[LoopRef]
) -> tuple[LoopRef, LoopRef] | None:
    """Copy the input inside the parallel loop, per block of channels; the parallel loop and the
    loop over tiles in it. None where that is refused."""
    with sch.attempt(info.ref):
        copy = _padding_block(sch, info, plan)
        # the last three loops are over tiles of a row, rows and panels of a block
        parallel_loop, tile = (
            sch.fuse(*x) if len(x) > 1 else x[0] for x in (loops[:-3], loops[-3:])
        )
        sch.compute_at(copy, parallel_loop)
        vectorize_and_unroll(sch, target, copy, is_short=False)
        return parallel_loop, tile
    return None


def _padding_block(sch: Schedule, info: BlockInfo, plan: ContractionPlan) -> BlockRef:
    """The element-wise block that makes the sliding operand."""
    axes = [info.block.axes[i] for i in (plan.rows, plan.lanes) if i is not None]
    sliding = {x.buffer.name for x in info.loads if all(depends_on(x, a) for a in axes)}
    found = [s.ref for s in block_infos(sch) if s.outputs & sliding and s.is_elementwise]
    if len(found) != 1:
        raise IngotError("bad-schedule", "channels_copied: no element-wise block makes the input")
    return found[0]

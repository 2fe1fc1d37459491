"""Apply: reductions in register tiles: GEMM, convolution, pooling; with packing and cache blocking.

    for outer tiles (parallel): for k…: for rows (unrolled): for vectors (unrolled): for lanes
                                for rows, vectors, lanes of the epilogue

The lanes are along the output's last axis, the rows along an axis that the vector loads do not
depend on, so that a loaded vector is used for every row. The consumer of the result is fused into
the epilogue of the tile. In: a nest around one reduction, and its plan (cost/gemm.py and
cost/depthwise.py). Out: the loop to parallelise; a refused step is an error.
"""

from __future__ import annotations

from ingot.cost.plan import ContractionPlan
from ingot.loops.ir import Axis
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.block_info import BlockInfo, block_info_of, loop_of, own_loops
from ingot.schedule.rules.depthwise import channel_blocks, copy_input_per_block
from ingot.schedule.rules.dot_products import tensorize_tile
from ingot.schedule.rules.elementwise import vectorize_and_unroll
from ingot.schedule.rules.micro_kernel import TileLoops, micro_kernel
from ingot.schedule.rules.packing import pack_operand, pack_per_panel, prefetch_next_panel
from ingot.schedule.rules.roles import batch_loops
from ingot.schedule.schedule import Schedule
from ingot.target import Target


def apply_register_tile(
    sch: Schedule, target: Target, info: BlockInfo, plan: ContractionPlan, consumer: BlockRef | None
) -> LoopRef:
    """Pack, pad, tile and order the nest, its consumer in the epilogue; the loop to parallelise."""
    assert plan.tile is not None and plan.lanes is not None
    if plan.packing is not None and plan.packing.by == "kernel":
        pack_operand(sch, info, plan)
        info = block_info_of(sch, info.ref)
    _pad_to_tiles(sch, info, plan)
    lane = _loop(sch, info, info.block.axes[plan.lanes])
    row = None if plan.rows is None else loop_of(sch, info, info.block.axes[plan.rows])
    k = [_loop(sch, info, a) for a in k_axes(info, plan)]
    rest = [x for x in own_loops(sch, info.ref) if x not in (*k, lane, row)]
    batch = batch_loops(sch, info, rest)
    rest = [*batch, *(x for x in rest if x not in batch)]
    panel, lane = sch.split(lane, None, plan.tile.columns)
    if row is None or plan.tile.rows == 1:
        outer, row = [*rest, panel, *([] if row is None else [row])], None
    else:
        row_tile, row = sch.split(row, None, plan.tile.rows)
        outer = _cache_blocked(sch, plan, rest, len(batch), row_tile, panel)
    terms = None
    if plan.dot is not None:
        k[-1], terms = sch.split(k[-1], None, plan.dot)
    if plan.prefetch is not None:
        k[-1:] = sch.split(k[-1], None, plan.prefetch)
    k = micro_kernel(sch, target, info.ref, plan, TileLoops(outer, k, row, lane, terms))
    if plan.prefetch is not None:
        prefetch_next_panel(sch, info, plan, panel, k[-2])
    parallel_loop, epilogue_loop = _parallel_and_epilogue_loops(sch, target, info, plan, outer)
    if consumer is not None:
        with sch.attempt(consumer):
            _fuse_epilogue(sch, target, consumer, epilogue_loop, plan.tile.lanes)
    if terms is not None:
        tensorize_tile(sch, target, info, plan, k[0])
    return parallel_loop


def k_axes(info: BlockInfo, plan: ContractionPlan) -> list[Axis]:
    """The reduce axes in the plan's order."""
    return [info.block.axes[i] for i in plan.k] or info.reduced


def _pad_to_tiles(sch: Schedule, info: BlockInfo, plan: ContractionPlan) -> None:
    """Pad the block to whole tiles; nothing reads what is computed beyond the end."""
    assert plan.tile is not None and plan.blocking is not None
    wanted: dict[int | None, int] = {}
    if plan.packing is not None:  # else vectors would become gathers
        wanted[plan.lanes] = plan.tile.columns
    if plan.rows is not None:
        row_tiles = plan.blocking.sizes[0] if plan.blocking.order == "blocks" else 1
        wanted[plan.rows] = plan.tile.rows * row_tiles
    if plan.tail == "pad":
        with sch.attempt(info.ref):
            sch.pad(info.ref, *(wanted.get(i, 1) for i in range(len(info.block.axes))))


def _cache_blocked(
    sch: Schedule, plan: ContractionPlan, rest: list[LoopRef], batches: int, row_tile: LoopRef,
    panel: LoopRef,
) -> list[LoopRef]:  # fmt: skip
    """The loops around the tile, in the plan's order."""
    assert plan.blocking is not None
    batch, rows = rest[:batches], [*rest[batches:], row_tile]
    match plan.blocking.order, plan.blocking.sizes:
        case "rows", ():
            return [*batch, *rows, panel]
        case "blocks", (size,):
            block, within = sch.split(row_tile, None, size)
            return [*batch, *rows[:-1], block, panel, within]
        case "channels" | "channels_copied", (size,):
            return channel_blocks(sch, rest, row_tile, panel, size)
        case "rows_copied", (size, height):
            return channel_blocks(
                sch, [*rest[:-1], *sch.split(rest[-1], None, height)], row_tile, panel, size
            )
    return [*batch, panel, *rows]


def _parallel_and_epilogue_loops(
    sch: Schedule, target: Target, info: BlockInfo, plan: ContractionPlan, outer: list[LoopRef]
) -> tuple[LoopRef, LoopRef]:
    """The outer loops fused to one, or to two where a copy is made between them."""
    assert plan.blocking is not None
    loops = None
    if plan.blocking.order in ("channels_copied", "rows_copied"):
        loops = copy_input_per_block(sch, target, info, plan, outer)
    if plan.packing is not None and plan.packing.per_panel:
        loops = pack_per_panel(sch, target, info, plan, outer)
    return loops or ((sch.fuse(*outer) if len(outer) > 1 else outer[0]),) * 2


def _fuse_epilogue(
    sch: Schedule, target: Target, consumer: BlockRef, loop: LoopRef, lanes: int
) -> None:
    """Fuse the consumer into the tile, fully unrolled and in vectors of the tile's lanes, so that
    the tile may stay in registers."""
    sch.reverse_compute_at(consumer, loop)
    vectorize_and_unroll(sch, target, consumer, most=lanes)


def _loop(sch: Schedule, info: BlockInfo, axis: Axis) -> LoopRef:
    loop = loop_of(sch, info, axis)
    assert loop is not None, "each axis of the block has a loop"
    return loop

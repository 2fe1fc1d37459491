"""Depthwise convolutions: the loop order around the register tile, and where the input is padded.

    for blocks of channels (parallel): copy the block of the image, with its zero padding
        for tiles of a row: for rows: for channels of the block

With channels innermost over the whole pixel, the weights of a 5 × 5 window leave the L1 cache from
tile to tile, and each input element is loaded from L2 once for every row of the window. With blocks
of few channels and rows inside, the input rows of one output row stay in L1 for the next. Pixels at
a stride of a large power of two share cache sets; those of a thread's copy are adjacent. Called by
the contraction rule; cost/contraction.py chooses the channels of a block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.arith.affine import coefficient
from ingot.cost import contraction as cost
from ingot.loops.ir import Load
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.block_info import (
    BlockInfo,
    block_infos,
    extent,
    index_vars,
    loop_of,
)
from ingot.schedule.rules.elementwise import vectorize_and_unroll
from ingot.schedule.rules.roles import Roles, depends_on, panel_width
from ingot.schedule.schedule import Schedule
from ingot.support import knobs
from ingot.target import Target


@dataclass(frozen=True)
class LoopOrder:
    """The loops around a register tile. If `copy`, the block that pads the input, is set, it may
    run once per block of channels: inside the first `outer_count` loops."""

    loops: list[LoopRef]
    outer_count: int
    copy: BlockRef | None


def depthwise_loop_order(
    sch: Schedule, target: Target, info: BlockInfo, roles: Roles, tile: cost.Tile,
    loops: list[LoopRef],
) -> LoopOrder | None:  # fmt: skip
    """`loops` are those around a tile, the last two over tiles of a row and over panels; None where
    another order does not pay."""
    *outer, across, panel = loops
    taps = {a.var: arith.as_int(a.extent) for a in info.reduced}
    sizes = {var: n for var, n in taps.items() if n is not None}
    panels = extent(sch, panel)
    if not tile.is_depthwise or not outer or panels is None or len(sizes) != len(taps):
        return None
    if panel_width(info, roles.lanes) is not None:
        return None  # a grouped convolution with packed weights
    if not knobs.current().depthwise_order or sum(n != 1 for n in sizes.values()) < 2:
        return None
    assert roles.rows is not None
    size = info.dtype.storage_bytes
    touched = sum(_span(x, sizes | {roles.rows.var: tile.rows}) for x in info.loads)
    width = tile.columns * size
    counts = cost.depthwise_channel_blocks(panels, width, touched * width, target.caches)
    copies = {n: _copy(sch, target, info, roles, outer, (n * width, panels // n)) for n in counts}
    count = next((n for n in counts if copies[n] is not None), None)
    window = math.prod(sizes.values())
    if count is None and cost.is_compute_bound_depthwise(window, tile.lanes * size):
        count = next(iter(counts), None)
    if count is None:
        return None
    blocks, within = sch.split(panel, None, count)
    return LoopOrder([*outer[:-1], blocks, across, outer[-1], within], len(outer), copies[count])


def copy_input_per_block(
    sch: Schedule, target: Target, order: LoopOrder
) -> tuple[LoopRef, LoopRef] | None:
    """Copy the input inside the parallel loop, per block of channels; the parallel loop and the
    loop over tiles in it. None where the input has no copy."""
    if order.copy is None:
        return None
    with sch.attempt():
        groups = order.loops[: order.outer_count], order.loops[order.outer_count :]
        parallel_loop, tile = (sch.fuse(*x) if len(x) > 1 else x[0] for x in groups)
        sch.compute_at(order.copy, parallel_loop)
        vectorize_and_unroll(sch, target, order.copy, is_short=False)
        return parallel_loop, tile
    return None


def _copy(
    sch: Schedule, target: Target, info: BlockInfo, roles: Roles, outer: list[LoopRef],
    block: tuple[int, int],
) -> BlockRef | None:  # fmt: skip
    """The block that pads the input with zeros, if a thread may do so per block of channels.
    `block`: bytes of a pixel in one block of channels, blocks per image."""
    assert roles.rows is not None
    sliding = [x for x in info.loads if depends_on(x, roles.lanes) and depends_on(x, roles.rows)]
    producers = [s for s in block_infos(sch) for x in sliding if x.buffer.name in s.outputs]
    images = [extent(sch, x) for x in outer[:-1]]
    if len(sliding) != 1 or len(producers) != 1 or not producers[0].is_elementwise:
        return None
    if len(images) > 1 or None in images:
        return None
    down = [a for a in info.spatial if loop_of(sch, info, a) == outer[-1]]
    extents = {a.var: arith.as_int(a.extent) for a in (*info.reduced, *down, roles.rows)}
    sizes = {var: n for var, n in extents.items() if n is not None}
    if len(sizes) != len(extents):
        return None
    pixels = _span(sliding[0], sizes)
    blocks = block[1] * math.prod(n for n in images if n is not None)
    fits = cost.may_copy_per_thread(pixels * block[0], blocks, target.cores, target.caches)
    return producers[0].ref if fits else None


def _span(load: Load, sizes: dict[str, int]) -> int:
    """Elements of the buffer that a tile touches, per lane."""
    total = 1
    for index in load.indices:
        found = {v: coefficient(index, v) for v in index_vars(index) & sizes.keys()}
        strides = {v: arith.as_int(stride) for v, stride in found.items() if stride is not None}
        total *= 1 + sum(abs(stride or 0) * (sizes[v] - 1) for v, stride in strides.items())
    return total

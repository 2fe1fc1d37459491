"""Depthwise convolutions: the order in which tiles go over the map, and where its borders are made.

    for blocks of channels (shared): copy the block of the map, zeros around it
        for tiles of a row: for rows: for channels of the block

With all channels of a pixel in turn, the weights of a 5 × 5 window leave the first-level cache from
tile to tile, and each input comes from the second level once for every row of the window. Down the
map with few channels, what one row's windows read is still there for the next row's. Pixels that
lie a large power of two apart share cache sets; those of a thread's own copy lie side by side. Used
by the rule for contractions; tiles.py says how many channels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ingot import tiles
from ingot.arith import expr as arith
from ingot.arith.affine import coefficient
from ingot.loops.ir import Load
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.maps import write_out
from ingot.schedule.rules.roles import Roles, mentions, panel_of
from ingot.schedule.rules.stages import (
    Stage,
    extent,
    index_vars,
    loop_of,
    stages,
)
from ingot.schedule.schedule import Schedule
from ingot.support import knobs
from ingot.target import Target


@dataclass(frozen=True)
class Order:
    """Loops around a tile; if `copy` makes the input, it may be made by block: the first
    `shared` of the loops are around that."""

    loops: list[LoopRef]
    shared: int
    copy: BlockRef | None


def down_the_map(
    sch: Schedule, target: Target, stage: Stage, roles: Roles, tile: tiles.Tile,
    loops: list[LoopRef],
) -> Order | None:  # fmt: skip
    """`loops` are those around a tile, the last two over tiles of a row and over panels; None where
    another order brings nothing."""
    *outer, across, panel = loops
    taps = {a.var: arith.as_int(a.extent) for a in stage.reduced}
    sizes = {var: n for var, n in taps.items() if n is not None}
    panels = extent(sch, panel)
    if not tile.is_apart or not outer or panels is None or len(sizes) != len(taps):
        return None
    if panel_of(stage, roles.lanes) is not None:
        return None  # a convolution in groups
    if not knobs.current().windows or sum(n != 1 for n in sizes.values()) < 2:
        return None
    assert roles.rows is not None
    size = stage.dtype.storage_bytes
    touched = sum(_span(x, sizes | {roles.rows.var: tile.rows}) for x in stage.loads)
    width = tile.columns * size
    counts = tiles.window_panels(panels, width, touched * width, target.caches)
    copies = {n: _copy(sch, target, stage, roles, outer, (n * width, panels // n)) for n in counts}
    count = next((n for n in counts if copies[n] is not None), None)
    if count is None and tiles.is_large_window(math.prod(sizes.values()), tile.lanes * size):
        count = next(iter(counts), None)
    if count is None:
        return None
    blocks, within = sch.split(panel, None, count)
    return Order([*outer[:-1], blocks, across, outer[-1], within], len(outer), copies[count])


def copy_by_block(sch: Schedule, target: Target, order: Order) -> tuple[LoopRef, LoopRef] | None:
    """The loop that threads share and the one over tiles inside, with the input's copy between;
    None where there is none."""
    if order.copy is None:
        return None
    with sch.attempt():
        parts = order.loops[: order.shared], order.loops[order.shared :]
        shared, tile = (sch.fuse(*part) if len(part) > 1 else part[0] for part in parts)
        sch.compute_at(order.copy, shared)
        write_out(sch, target, order.copy, is_short=False)
        return shared, tile
    return None


def _copy(
    sch: Schedule, target: Target, stage: Stage, roles: Roles, outer: list[LoopRef],
    block: tuple[int, int],
) -> BlockRef | None:  # fmt: skip
    """The map that puts zeros around the input, if a block's part of it may be made on its own;
    `block` is the bytes of a pixel in one, and how many there are of an image."""
    assert roles.rows is not None
    sliding = [x for x in stage.loads if mentions(x, roles.lanes) and mentions(x, roles.rows)]
    makers = [s for s in stages(sch) for x in sliding if x.buffer.name in s.outputs]
    images = [extent(sch, x) for x in outer[:-1]]
    if len(sliding) != 1 or len(makers) != 1 or not makers[0].is_map:
        return None
    if len(images) > 1 or None in images:
        return None
    down = [a for a in stage.spatial if loop_of(sch, stage, a) == outer[-1]]
    extents = {a.var: arith.as_int(a.extent) for a in (*stage.reduced, *down, roles.rows)}
    sizes = {var: n for var, n in extents.items() if n is not None}
    if len(sizes) != len(extents):
        return None
    pixels = _span(sliding[0], sizes)
    shares = block[1] * math.prod(n for n in images if n is not None)
    fits = tiles.may_copy_near(pixels * block[0], shares, target.cores, target.caches)
    return makers[0].ref if fits else None


def _span(load: Load, sizes: dict[str, int]) -> int:
    """How many elements of a buffer a tile touches for each lane."""
    total = 1
    for index in load.indices:
        moves = {v: coefficient(index, v) for v in index_vars(index) & sizes.keys()}
        steps = {v: arith.as_int(step) for v, step in moves.items() if step is not None}
        total *= 1 + sum(abs(step or 0) * (sizes[v] - 1) for v, step in steps.items())
    return total

"""Rule: 3 × 3 convolutions by Winograd's products, three stages in one nest or one after the other.

    for blocks of tiles (parallel):
        for tiles, vectors of channels:     16 numbers from 16 pixels, all in registers → scratch
        for places, panels, tiles of rows:  the products, in registers → scratch
        for tiles, vectors of outputs:      2 × 2 outputs, and what is done with them

With few tiles each stage is a nest of its own, so that threads share out the weights and not the
pixels. In: a kernel with the stages of ops/winograd.py, maps after them. winograd_tiles.py says how
large a block is.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot import winograd_tiles
from ingot.arith import expr as arith
from ingot.loops import ir
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.contraction import schedule_reduction
from ingot.schedule.rules.inline import inline_maps
from ingot.schedule.rules.maps import has_work, write_out
from ingot.schedule.rules.stages import extent, own_loops, stage_of, stages
from ingot.schedule.rules.steps import write_out_steps
from ingot.schedule.schedule import Schedule
from ingot.support.errors import IngotError
from ingot.target import Target
from ingot.winograd_tiles import TILE, Conv


@dataclass(frozen=True)
class Parts:
    """The stages by what they are for."""

    pixels: BlockRef
    product: BlockRef
    outputs: BlockRef


def schedule_winograd(sch: Schedule, target: Target) -> bool:
    """All of it in the way that suits its sizes; False where some step is refused."""
    with sch.attempt():
        parts = _parts(sch)
        if not _in_blocks(sch, target, parts):
            _in_turn(sch, target, parts)
        return True
    return False


def _parts(sch: Schedule) -> Parts:
    """The maps after the products become one stage."""
    pixels, product, *_ = stages(sch)
    inline_maps(sch, keep=(pixels.ref,))
    after = [s.ref for s in stages(sch) if s.ref not in (pixels.ref, product.ref)]
    if not pixels.is_map or not product.is_reduction or len(after) != 1:
        raise IngotError("bad-schedule", "winograd: there are other stages than three")
    return Parts(pixels.ref, product.ref, after[0])


# --- all stages for some tiles ------------------------------------------------------------------


def _in_blocks(sch: Schedule, target: Target, parts: Parts) -> bool:
    """One nest over blocks; False where stages go one after the other."""
    conv = _sizes(sch, parts)
    product = stage_of(sch, parts.product)
    grid = None if conv is None else winograd_tiles.grid(conv, product.dtype, target)
    if conv is None or grid is None or grid.block is None:
        return False
    images, places = product.block.axes[1].extent, stage_of(sch, parts.outputs).spatial[0].extent
    if images != arith.wrap(places) * (grid.rows * grid.columns):
        return False  # a grid of somebody else's
    best = winograd_tiles.register_tile(conv, target, product.dtype)
    rows = winograd_tiles.rows_within(best, grid.block[0] * grid.block[1])
    with sch.attempt():
        image, row, column = _output_tiles(sch, target, parts.outputs)
        high, row = sch.split(row, None, grid.block[0])
        wide, column = sch.split(column, None, grid.block[1])
        sch.reorder(image, high, wide, row, column)
        shared = sch.fuse(image, high, wide)
        sch.pad(parts.product, 1, 1, best.columns, 1)  # whole panels
        results = sch.cache_write(parts.product)
        sch.compute_at(results, shared)
        _product_tiles(sch, target, parts.product, results, rows or 1, best.columns)
        sch.compute_at(parts.pixels, shared)
        _pixel_tiles(sch, target, parts.pixels)
        for ref in (parts.pixels, results, parts.product):
            sch.set_scope(ref, ir.THREAD)
        sch.parallel(shared)
        return True
    return False


def _sizes(sch: Schedule, parts: Parts) -> Conv | None:
    """The convolution's; the batch's need not be known."""
    batch, height, width, outputs = (
        arith.as_int(a.extent) for a in stage_of(sch, parts.outputs).spatial
    )
    channels = arith.as_int(stage_of(sch, parts.product).reduced[0].extent)
    if height is None or width is None or outputs is None or channels is None:
        return None
    return Conv(batch, channels, outputs, height, width)


def _product_tiles(
    sch: Schedule, target: Target, product: BlockRef, results: BlockRef, rows: int, width: int
) -> None:
    """Register tiles down the panels, their results written to scratch."""
    place, row, lane = own_loops(sch, results)
    row_tile, row = sch.split(row, None, rows)
    panel, lane = sch.split(lane, None, width)
    sch.reorder(place, panel, row_tile, row, lane)
    sch.compute_at(product, row_tile)
    place, row, lane, channel = own_loops(sch, product)
    vectors, lane = sch.split(lane, None, target.lanes(stage_of(sch, product).dtype))
    sch.reorder(place, channel, row, vectors, lane)
    sch.vectorize(lane)
    sch.unroll(row)
    sch.unroll(vectors)
    write_out_steps(sch, rows, channel)
    write_out(sch, target, results)


# --- one stage after the other ------------------------------------------------------------------


def _in_turn(sch: Schedule, target: Target, parts: Parts) -> None:
    schedule_reduction(sch, target, stage_of(sch, parts.product), eager=True)
    tiles = _pixel_tiles(sch, target, parts.pixels)
    image, row, _ = _output_tiles(sch, target, parts.outputs)
    for ref, shared in ((parts.pixels, tiles), (parts.outputs, sch.fuse(image, row))):
        if has_work(sch, stage_of(sch, ref)):
            sch.parallel(shared)


# --- both ends ----------------------------------------------------------------------------------


def _pixel_tiles(sch: Schedule, target: Target, ref: BlockRef) -> LoopRef:
    """All places of a tile at once, from pixels that are loaded once; the loop over tiles."""
    place, tile, channel = own_loops(sch, ref)
    vectors, lane = _vectors(sch, target, ref, channel)
    sch.reorder(tile, vectors, place, lane)
    sch.vectorize(lane)
    sch.unroll(place)
    return tile


def _output_tiles(sch: Schedule, target: Target, ref: BlockRef) -> tuple[LoopRef, LoopRef, LoopRef]:
    """The outputs of a tile at once; the loops over images and tiles."""
    image, y, x, channel = own_loops(sch, ref)
    row, y = sch.split(y, None, TILE)
    column, x = sch.split(x, None, TILE)
    vectors, lane = _vectors(sch, target, ref, channel)
    sch.reorder(image, row, column, vectors, y, x, lane)
    sch.vectorize(lane)
    for loop in (y, x):
        sch.unroll(loop)
    return image, row, column


def _vectors(sch: Schedule, target: Target, ref: BlockRef, loop: LoopRef) -> list[LoopRef]:
    count, lanes = extent(sch, loop), target.lanes(stage_of(sch, ref).dtype)
    return sch.split(loop, None, lanes if count is None else min(count, lanes))

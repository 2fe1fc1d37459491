"""Rule: Winograd F(2×2, 3×3) convolutions, the three stages fused in one nest or nest by nest.

    for blocks of tiles (parallel):
        for tiles, vectors of channels:     input transform, 4 × 4 pixels in registers → scratch
        for points, panels, row tiles:      one GEMM per point, register tiles → scratch
        for tiles, vectors of channels:     output transform, 2 × 2 outputs, and the epilogue

With few tiles each stage is a nest of its own: threads then split the GEMMs along the weights and
not along the tiles. In: a kernel with the blocks of ops/winograd.py and element-wise blocks after
them. cost/winograd.py chooses the block size.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.cost import winograd as winograd_cost
from ingot.cost.winograd import OUTPUT_TILE, ConvShape
from ingot.loops import ir
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.block_info import block_info_of, block_infos, extent, own_loops
from ingot.schedule.rules.contraction import schedule_reduction
from ingot.schedule.rules.elementwise import has_work, vectorize_and_unroll
from ingot.schedule.rules.inline import inline_elementwise
from ingot.schedule.rules.k_unroll import unroll_k
from ingot.schedule.schedule import Schedule
from ingot.support.errors import IngotError
from ingot.target import Target


@dataclass(frozen=True)
class WinogradBlocks:
    """The blocks of the three stages."""

    input_transform: BlockRef
    gemm: BlockRef
    output_transform: BlockRef


def schedule_winograd(sch: Schedule, target: Target) -> bool:
    """Schedule fused or stage by stage, as the sizes suggest; False if a step is illegal."""
    with sch.attempt():
        blocks = _find_blocks(sch)
        if not _fused(sch, target, blocks):
            _unfused(sch, target, blocks)
        return True
    return False


def _find_blocks(sch: Schedule) -> WinogradBlocks:
    """Inline the element-wise blocks after the GEMM into the output transform."""
    input_transform, gemm, *_ = block_infos(sch)
    inline_elementwise(sch, keep=(input_transform.ref,))
    after = [s.ref for s in block_infos(sch) if s.ref not in (input_transform.ref, gemm.ref)]
    if not input_transform.is_elementwise or not gemm.is_reduction or len(after) != 1:
        raise IngotError("bad-schedule", "winograd: the kernel does not have three stages")
    return WinogradBlocks(input_transform.ref, gemm.ref, after[0])


# --- all stages fused over blocks of tiles ------------------------------------------------------


def _fused(sch: Schedule, target: Target, blocks: WinogradBlocks) -> bool:
    """One parallel nest over blocks of tiles; False where the stages stay separate nests."""
    conv = _sizes(sch, blocks)
    gemm = block_info_of(sch, blocks.gemm)
    grid = None if conv is None else winograd_cost.grid(conv, gemm.dtype, target)
    if conv is None or grid is None or grid.block is None:
        return False
    tiles = gemm.block.axes[1].extent
    batch = block_info_of(sch, blocks.output_transform).spatial[0].extent
    if tiles != arith.wrap(batch) * (grid.rows * grid.columns):
        return False  # the kernel was built for another tile grid
    best = winograd_cost.register_tile(conv, target, gemm.dtype)
    rows = winograd_cost.rows_dividing(best, grid.block[0] * grid.block[1])
    with sch.attempt():
        image, row, column = _output_transform_tiles(sch, target, blocks.output_transform)
        high, row = sch.split(row, None, grid.block[0])
        wide, column = sch.split(column, None, grid.block[1])
        sch.reorder(image, high, wide, row, column)
        parallel_loop = sch.fuse(image, high, wide)
        sch.pad(blocks.gemm, 1, 1, best.columns, 1)  # whole panels
        results = sch.cache_write(blocks.gemm)
        sch.compute_at(results, parallel_loop)
        _gemm_tiles(sch, target, blocks.gemm, results, rows or 1, best.columns)
        sch.compute_at(blocks.input_transform, parallel_loop)
        _input_transform_tiles(sch, target, blocks.input_transform)
        for ref in (blocks.input_transform, results, blocks.gemm):
            sch.set_scope(ref, ir.THREAD)
        sch.parallel(parallel_loop)
        return True
    return False


def _sizes(sch: Schedule, blocks: WinogradBlocks) -> ConvShape | None:
    """The shape of the convolution; the batch may be dynamic."""
    batch, height, width, outputs = (
        arith.as_int(a.extent) for a in block_info_of(sch, blocks.output_transform).spatial
    )
    channels = arith.as_int(block_info_of(sch, blocks.gemm).reduced[0].extent)
    if height is None or width is None or outputs is None or channels is None:
        return None
    return ConvShape(batch, channels, outputs, height, width)


def _gemm_tiles(
    sch: Schedule, target: Target, gemm: BlockRef, results: BlockRef, rows: int, width: int
) -> None:
    """Register tiles of the GEMM along the panels of weights, stored to scratch."""
    point, row, lane = own_loops(sch, results)
    row_tile, row = sch.split(row, None, rows)
    panel, lane = sch.split(lane, None, width)
    sch.reorder(point, panel, row_tile, row, lane)
    sch.compute_at(gemm, row_tile)
    point, row, lane, channel = own_loops(sch, gemm)
    vectors, lane = sch.split(lane, None, target.lanes(block_info_of(sch, gemm).dtype))
    sch.reorder(point, channel, row, vectors, lane)
    sch.vectorize(lane)
    sch.unroll(row)
    sch.unroll(vectors)
    unroll_k(sch, rows, channel)
    vectorize_and_unroll(sch, target, results)


# --- each stage in a nest of its own ------------------------------------------------------------


def _unfused(sch: Schedule, target: Target, blocks: WinogradBlocks) -> None:
    schedule_reduction(sch, target, block_info_of(sch, blocks.gemm), eager=True)
    tiles = _input_transform_tiles(sch, target, blocks.input_transform)
    image, row, _ = _output_transform_tiles(sch, target, blocks.output_transform)
    rows = sch.fuse(image, row)
    for ref, parallel_loop in ((blocks.input_transform, tiles), (blocks.output_transform, rows)):
        if has_work(sch, block_info_of(sch, ref)):
            sch.parallel(parallel_loop)


# --- the transforms -----------------------------------------------------------------------------


def _input_transform_tiles(sch: Schedule, target: Target, ref: BlockRef) -> LoopRef:
    """All 16 points of a tile, unrolled, so that each pixel is loaded once; the loop over tiles."""
    point, tile, channel = own_loops(sch, ref)
    vectors, lane = _vectors(sch, target, ref, channel)
    sch.reorder(tile, vectors, point, lane)
    sch.vectorize(lane)
    sch.unroll(point)
    return tile


def _output_transform_tiles(
    sch: Schedule, target: Target, ref: BlockRef
) -> tuple[LoopRef, LoopRef, LoopRef]:
    """The 2 × 2 outputs of a tile, unrolled; the loops over images and tiles."""
    image, y, x, channel = own_loops(sch, ref)
    row, y = sch.split(y, None, OUTPUT_TILE)
    column, x = sch.split(x, None, OUTPUT_TILE)
    vectors, lane = _vectors(sch, target, ref, channel)
    sch.reorder(image, row, column, vectors, y, x, lane)
    sch.vectorize(lane)
    for loop in (y, x):
        sch.unroll(loop)
    return image, row, column


def _vectors(sch: Schedule, target: Target, ref: BlockRef, loop: LoopRef) -> list[LoopRef]:
    count, lanes = extent(sch, loop), target.lanes(block_info_of(sch, ref).dtype)
    return sch.split(loop, None, lanes if count is None else min(count, lanes))

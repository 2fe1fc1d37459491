"""Apply: Winograd F(2×2, 3×3) convolutions, the three stages fused in one nest or nest by nest.

    for blocks of tiles (parallel):
        for tiles, vectors of channels:     input transform, 4 × 4 pixels in registers → scratch
        for points, panels, row tiles:      one GEMM per point, register tiles → scratch
        for tiles, vectors of channels:     output transform, 2 × 2 outputs, and the epilogue

With few tiles each stage is a nest of its own: threads then split the GEMMs along the weights and
not along the tiles. In: a kernel with the blocks of ops/winograd.py and element-wise blocks after
them, and the plan of its GEMMs: "winograd_f2" (cost/winograd.py), or that of a plain GEMM. A
refused step is an error.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.cost.plan import PLAIN, ContractionPlan
from ingot.loops import ir
from ingot.ops.winograd import OUTPUT_TILE
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.base import Rules
from ingot.schedule.rules.block_info import block_info_of, block_infos, extent, own_loops
from ingot.schedule.rules.dot_products import tensorize_tile
from ingot.schedule.rules.elementwise import has_work, vectorize_and_unroll
from ingot.schedule.rules.generic import schedule_generic
from ingot.schedule.rules.inline import inline_elementwise
from ingot.schedule.rules.micro_kernel import TileLoops, micro_kernel
from ingot.schedule.rules.reduction import schedule_reduction
from ingot.schedule.schedule import Schedule
from ingot.support.errors import IngotError
from ingot.target import Target


@dataclass(frozen=True)
class WinogradBlocks:
    """The blocks of the three stages."""

    input_transform: BlockRef
    gemm: BlockRef
    output_transform: BlockRef


def prepare_winograd(sch: Schedule) -> None:
    """Inline the element-wise blocks after the GEMM into the output transform."""
    inline_elementwise(sch, keep=(block_infos(sch)[0].ref,))


def apply_winograd(sch: Schedule, target: Target, rules: Rules) -> None:
    blocks = find_blocks(sch)
    plan = sch.plans.get(blocks.gemm.name, PLAIN)
    if plan.algorithm == "winograd_f2":
        with sch.attempt(blocks.gemm):
            _fused(sch, target, blocks, plan)
            return
        sch.plans[blocks.gemm.name] = plan.otherwise or PLAIN
    _unfused(sch, target, blocks, rules)


def find_blocks(sch: Schedule) -> WinogradBlocks:
    input_transform, gemm, *_ = block_infos(sch)
    after = [s.ref for s in block_infos(sch) if s.ref not in (input_transform.ref, gemm.ref)]
    if not input_transform.is_elementwise or not gemm.is_reduction or len(after) != 1:
        raise IngotError("bad-schedule", "winograd: the kernel does not have three stages")
    return WinogradBlocks(input_transform.ref, gemm.ref, after[0])


# --- all stages fused over blocks of tiles ------------------------------------------------------


def _fused(sch: Schedule, target: Target, blocks: WinogradBlocks, plan: ContractionPlan) -> None:
    """One parallel nest over blocks of tiles."""
    assert plan.tile is not None and plan.blocking is not None
    image, row, column = _output_transform_tiles(sch, target, blocks.output_transform)
    parallel_loop = _block_loop(sch, plan.blocking.sizes, image, row, column)
    sch.pad(blocks.gemm, 1, 1, plan.tile.columns, 1)  # whole panels
    results = sch.cache_write(blocks.gemm)
    sch.compute_at(results, parallel_loop)
    _gemm_tiles(sch, target, blocks.gemm, results, plan)
    sch.compute_at(blocks.input_transform, parallel_loop)
    _input_transform_tiles(sch, target, blocks.input_transform)
    for ref in (blocks.input_transform, results, blocks.gemm):
        sch.set_scope(ref, ir.THREAD)
    sch.parallel(parallel_loop)


def _block_loop(
    sch: Schedule, block: tuple[int, ...], image: LoopRef, row: LoopRef, column: LoopRef
) -> LoopRef:
    """The loop over blocks of rows and columns of tiles, or of consecutive tiles."""
    if len(block) == 1:
        return sch.split(sch.fuse(image, row, column), None, block[0])[0]
    high, row = sch.split(row, None, block[0])
    wide, column = sch.split(column, None, block[1])
    sch.reorder(image, high, wide, row, column)
    return sch.fuse(image, high, wide)


def _gemm_tiles(
    sch: Schedule, target: Target, gemm: BlockRef, results: BlockRef, plan: ContractionPlan
) -> None:
    """Register tiles of the GEMM along the panels of weights, stored to scratch."""
    assert plan.tile is not None
    point, row, lane = own_loops(sch, results)
    row_tile, row = sch.split(row, None, plan.tile.rows)
    panel, lane = sch.split(lane, None, plan.tile.columns)
    sch.reorder(point, panel, row_tile, row, lane)
    sch.compute_at(gemm, row_tile)
    point, row, lane, channel = own_loops(sch, gemm)
    terms = None
    if plan.dot is not None:
        channel, terms = sch.split(channel, None, plan.dot)
    k = micro_kernel(sch, target, gemm, plan, TileLoops([point], [channel], row, lane, terms))
    vectorize_and_unroll(sch, target, results)
    if terms is not None:
        tensorize_tile(sch, target, block_info_of(sch, gemm), plan, k[0])


# --- each stage in a nest of its own ------------------------------------------------------------


def _unfused(sch: Schedule, target: Target, blocks: WinogradBlocks, rules: Rules) -> None:
    schedule_reduction(sch, target, block_info_of(sch, blocks.gemm), rules, eager=True)
    tiles = _input_transform_tiles(sch, target, blocks.input_transform)
    image, row, _ = _output_transform_tiles(sch, target, blocks.output_transform)
    rows = sch.fuse(image, row)
    for ref, parallel_loop in ((blocks.input_transform, tiles), (blocks.output_transform, rows)):
        if has_work(sch, block_info_of(sch, ref)):
            sch.parallel(parallel_loop)
    schedule_generic(sch, target, rules)  # packing of weights that are no constant


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

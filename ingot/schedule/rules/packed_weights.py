"""Apply: matrix products with packed weights of few bits (ops/matmul_packed.py).

    x scaled by powers of two, sums of its blocks: small nests before
    for panels (parallel):
        for blocks of k:
            packed_tiles: decode the codes of the block → scratch
            for row tiles:
                for words: for codes of a word, rows, vectors (unrolled):    partial += x · code
                for rows, vectors:              total += (partial - zero · sum of x) · scale
        the epilogue, on the panel

With few rows (packed_rows) the codes are inlined where they are used: a word is loaded once for all
its codes, and a code is decoded once for all rows. In: the kernel, its plan (cost/packed_weights).
A refused step is an error.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.cost.plan import ContractionPlan
from ingot.loops import ir, visit
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.base import Rules
from ingot.schedule.rules.block_info import block_info_of, block_infos, own_loops
from ingot.schedule.rules.elementwise import vectorize_loop
from ingot.schedule.rules.generic import schedule_generic
from ingot.schedule.rules.inline import inline_elementwise
from ingot.schedule.schedule import Schedule
from ingot.support.errors import IngotError
from ingot.target import Target


@dataclass(frozen=True)
class PackedBlocks:
    """The blocks of the product."""

    scaled: BlockRef  # rows of x, scaled
    codes: BlockRef
    partial: BlockRef  # the sum of each block of k
    total: BlockRef
    consumer: BlockRef | None  # the epilogue


def prepare_packed_weights(sch: Schedule) -> None:
    """Inline all element-wise blocks but the operands of the product."""
    blocks = find_blocks(sch)
    inline_elementwise(sch, keep=(blocks.scaled, blocks.codes))


def find_blocks(sch: Schedule) -> PackedBlocks:
    infos = {info.ref: info for info in block_infos(sch)}
    maker = {name: info for info in infos.values() for name in info.outputs}
    for info in infos.values():
        makers = [maker[x.buffer.name] for x in info.loads if x.buffer.name in maker]
        partial = next((m for m in makers if m.is_reduction and _multiplies_codes(m.block)), None)
        if info.is_reduction and partial is not None:
            scaled, codes = (maker[x.buffer.name].ref for x in partial.loads)
            made = info.outputs
            readers = [i for i in infos.values() if any(x.buffer.name in made for x in i.loads)]
            is_alone = len(readers) == 1 and readers[0].is_elementwise
            consumer = readers[0].ref if is_alone else None
            return PackedBlocks(scaled, codes, partial.ref, info.ref, consumer)
    raise IngotError("bad-schedule", "packed weights: the kernel has no sums of codes")


def _multiplies_codes(block: ir.Block) -> bool:
    return any(isinstance(s.value, ir.Fma) for s in visit.stores(block.body))


def panel_of(sch: Schedule, blocks: PackedBlocks) -> tuple[int, int]:
    """The columns of a panel of the packed weights, and the codes of a word."""
    info = block_info_of(sch, blocks.codes)
    shape = [arith.as_int(n) for n in info.loads[0].buffer.shape]
    depth = arith.as_int(info.spatial[0].extent)
    match shape:
        case [int(), int(words), int(columns)] if depth is not None:
            return columns, depth // words
    raise IngotError("bad-schedule", "packed weights: they are not in panels")


def apply_packed_weights(sch: Schedule, target: Target, rules: Rules) -> None:
    """The product in one nest; what comes before by the generic rule."""
    blocks = find_blocks(sch)
    plan = sch.plans.get(blocks.total.name)
    if plan is None or plan.algorithm not in ("packed_rows", "packed_tiles") or plan.tile is None:
        raise IngotError("bad-schedule", f"packed weights: the plan is {plan}")
    _, codes = panel_of(sch, blocks)
    if sch.at_block(blocks.total).axes[0].extent != plan.tile.rows:
        sch.pad(blocks.partial, plan.tile.rows, 1, 1, 1)
        sch.pad(blocks.total, plan.tile.rows, 1, 1)
    parallel_loop, k_loop, row_tile = _tile_total(sch, plan, blocks)
    if plan.algorithm == "packed_rows":
        sch.compute_inline(blocks.codes)
    sch.compute_at(blocks.partial, row_tile)
    if plan.algorithm == "packed_tiles":
        sch.compute_at(blocks.codes, k_loop)
        sch.set_scope(blocks.codes, ir.THREAD)
        _decode_loops(sch, plan, blocks.codes, codes)
    init = sch.decompose_reduction(blocks.total, k_loop)
    _partial_loops(sch, plan, blocks.partial, codes)
    sch.set_scope(blocks.partial, ir.THREAD)
    if blocks.consumer is not None:
        sch.reverse_compute_at(blocks.consumer, parallel_loop)
        vectorize_loop(
            sch, target, block_info_of(sch, blocks.consumer), own_loops(sch, blocks.consumer)[-1]
        )
    vectorize_loop(sch, target, block_info_of(sch, init), own_loops(sch, init)[-1])
    sch.parallel(parallel_loop)
    schedule_generic(sch, target, rules)


def _tile_total(
    sch: Schedule, plan: ContractionPlan, blocks: PackedBlocks
) -> tuple[LoopRef, LoopRef, LoopRef]:
    """Tile the sum over blocks of k; the loops over panels, blocks and row tiles."""
    assert plan.tile is not None
    row, column, k = own_loops(sch, blocks.total)
    panel, column = sch.split(column, None, plan.tile.columns)
    row_tile, row = sch.split(row, None, plan.tile.rows)
    vectors, lane = sch.split(column, None, plan.tile.lanes)
    sch.reorder(panel, k, row_tile, row, vectors, lane)
    sch.vectorize(lane)
    for loop in (row, vectors):
        sch.unroll(loop)
    return panel, k, row_tile


def _partial_loops(sch: Schedule, plan: ContractionPlan, ref: BlockRef, codes: int) -> None:
    """Words outside; the codes of a word, rows and vectors unrolled."""
    assert plan.tile is not None
    *others, column, k = own_loops(sch, ref)
    words, code = sch.split(k, None, codes)
    vectors, lane = sch.split(column, None, plan.tile.lanes)
    sch.reorder(words, code, *others, vectors, lane)
    sch.vectorize(lane)
    for loop in (code, *others, vectors):
        sch.unroll(loop)


def _decode_loops(sch: Schedule, plan: ContractionPlan, ref: BlockRef, codes: int) -> None:
    assert plan.tile is not None
    k, column = own_loops(sch, ref)
    words, code = sch.split(k, None, codes)
    vectors, lane = sch.split(column, None, plan.tile.lanes)
    sch.reorder(words, vectors, code, lane)
    sch.vectorize(lane)
    for loop in (code, vectors):
        sch.unroll(loop)

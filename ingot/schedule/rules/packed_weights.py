"""Apply: matrix products with packed weights of few bits (ops/packed_loops.py).

    x quantised or scaled, sums of its blocks: small nests before
    for panels (parallel):
        for blocks of k:
            packed_tiles: decode the codes of the block → scratch in the L1 cache
            for row tiles:
                for words:    packed_rows: decode the codes of a word, in registers
                              for codes, rows, vectors (unrolled):   block sum += x · code
                for rows, vectors:   total += (block sum - zero · row sum) · scale
        the epilogue, on the panel

A word is loaded once for all its codes, and a code is decoded once for the rows of a tile. Codes of
8 or 16 bits are multiplied by dot-product instructions, the plan's `dot` terms at a time. In: the
kernel, and its plan (cost/packed_weights.py). A refused step is an error.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.cost.plan import ContractionPlan
from ingot.loops import ir
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.base import Rules
from ingot.schedule.rules.block_info import (
    BlockInfo,
    block_info_of,
    block_infos,
    extent,
    own_loops,
    top_nests,
)
from ingot.schedule.rules.elementwise import has_work, vectorize_loop
from ingot.schedule.rules.generic import schedule_generic
from ingot.schedule.rules.inline import inline_elementwise
from ingot.schedule.rules.row_reduction import rfactor_lanes, vectorize_final_reduction
from ingot.schedule.schedule import Schedule
from ingot.schedule.widening import code_dot
from ingot.support.errors import IngotError
from ingot.target import Target

ALGORITHMS = ("packed_rows", "packed_tiles")


@dataclass(frozen=True)
class PackedBlocks:
    """The blocks of the product."""

    scaled: BlockRef  # the rows of x
    codes: BlockRef
    partial: BlockRef  # the sum of each block of k
    total: BlockRef
    consumer: BlockRef | None  # the epilogue


@dataclass(frozen=True)
class Words:
    """The layout of packed weights."""

    panel: int  # columns
    units: int  # of a word
    codes: int  # of a word


@dataclass(frozen=True)
class TotalLoops:
    """The loops of the sum over blocks of k."""

    panel: LoopRef
    k: LoopRef
    row_tile: LoopRef
    row: LoopRef
    vectors: LoopRef
    lane: LoopRef


def prepare_packed_weights(sch: Schedule) -> None:
    """Inline all element-wise blocks but the operands of the product."""
    blocks = find_blocks(sch)
    inline_elementwise(sch, keep=(blocks.scaled, blocks.codes))


def find_blocks(sch: Schedule) -> PackedBlocks:
    infos = block_infos(sch)
    maker = {name: info for info in infos for name in info.outputs}
    for info in infos:
        partial = next((p for p in _makers(info, maker) if len(p.spatial) >= 3), None)
        if not info.is_reduction or partial is None or not partial.is_reduction:
            continue
        operands = {m.ref: m for m in _makers(partial, maker)}
        codes = [m for m in operands.values() if m.block.axes[0].extent == _depth(partial)]
        if len(operands) == 2 and codes:
            scaled = next(ref for ref in operands if ref != codes[0].ref)
            made = info.outputs
            readers = [i for i in infos if i.ref != info.ref and made & _read(i)]
            is_alone = len(readers) == 1 and readers[0].is_elementwise
            consumer = readers[0].ref if is_alone else None
            return PackedBlocks(scaled, codes[0].ref, partial.ref, info.ref, consumer)
    raise IngotError("bad-schedule", "packed weights: the kernel has no sums of codes")


def _makers(info: BlockInfo, maker: dict[str, BlockInfo]) -> list[BlockInfo]:
    return [maker[x.buffer.name] for x in info.loads if x.buffer.name in maker]


def _read(info: BlockInfo) -> set[str]:
    return {x.buffer.name for x in info.loads}


def _depth(partial: BlockInfo) -> arith.Expr:
    (*_, blocks, _), (block,) = partial.spatial, partial.reduced
    return blocks.extent * block.extent


def words_of(sch: Schedule, blocks: PackedBlocks) -> Words:
    info = block_info_of(sch, blocks.codes)
    shape = [arith.as_int(n) for n in info.loads[0].buffer.shape]
    depth = arith.as_int(info.spatial[0].extent)
    match shape:
        case [int(), int(words), int(columns), int(units)] if depth is not None:
            return Words(columns, units, depth // words)
    raise IngotError("bad-schedule", "packed weights: they are not in panels")


def digits_of(sch: Schedule, blocks: PackedBlocks) -> int:
    """The digits of an x, each of which has its own sums."""
    spatial = block_info_of(sch, blocks.partial).spatial
    return (arith.as_int(spatial[1].extent) or 1) if len(spatial) > 3 else 1


def apply_packed_weights(sch: Schedule, target: Target, rules: Rules) -> None:
    """The product in one nest; what comes before by the generic rule."""
    blocks = find_blocks(sch)
    plan = sch.plans.get(blocks.total.name)
    if plan is None or plan.algorithm not in ALGORITHMS or plan.tile is None:
        raise IngotError("bad-schedule", f"packed weights: the plan is {plan}")
    words = words_of(sch, blocks)
    if sch.at_block(blocks.total).axes[0].extent != plan.tile.rows:
        ones = [1] * (len(sch.at_block(blocks.partial).axes) - 1)
        sch.pad(blocks.partial, plan.tile.rows, *ones)
        sch.pad(blocks.total, plan.tile.rows, 1, 1)
    if plan.dot is not None:  # the terms of an instruction are adjacent
        made = block_info_of(sch, blocks.codes).outputs
        layout = f"d0, d1 -> d0 // {plan.dot}, d1, d0 % {plan.dot}"
        sch.transform_layout(min(made), layout)
    if plan.algorithm == "packed_tiles":  # else rows are far apart, and share a cache set
        _block_rows(sch, blocks)
    loops = _tile_total(sch, plan, blocks)
    _inside(sch, target, plan, blocks, loops, words)
    if blocks.consumer is not None:
        sch.reverse_compute_at(blocks.consumer, loops.panel)
        _vectorize(sch, target, blocks.consumer)
    sch.parallel(loops.panel)
    done = [ref for ref in _row_reductions(sch) if _row_reduction(sch, target, ref)]
    schedule_generic(sch, target, rules, done)


def _block_rows(sch: Schedule, blocks: PackedBlocks) -> None:
    """What all rows have of one block of k becomes adjacent."""
    (made,) = block_info_of(sch, blocks.scaled).outputs
    size = arith.as_int(block_info_of(sch, blocks.partial).reduced[0].extent)
    *rows, k = [f"d{i}" for i in range(len(sch.at_block(blocks.scaled).axes))]
    names, row_names = ", ".join([*rows, k]), ", ".join(rows)
    sch.transform_layout(made, f"{names} -> {k} // {size}, {row_names}, {k} % {size}")


def _tile_total(sch: Schedule, plan: ContractionPlan, blocks: PackedBlocks) -> TotalLoops:
    """Tile the sum over blocks of k."""
    assert plan.tile is not None
    row, column, k = own_loops(sch, blocks.total)
    panel, column = sch.split(column, None, plan.tile.columns)
    row_tile, row = sch.split(row, None, plan.tile.rows)
    vectors, lane = sch.split(column, None, plan.tile.lanes)
    sch.reorder(panel, k, row_tile, row, vectors, lane)
    return TotalLoops(panel, k, row_tile, row, vectors, lane)


def _inside(
    sch: Schedule, target: Target, plan: ContractionPlan, blocks: PackedBlocks, loops: TotalLoops,
    words: Words,
) -> None:  # fmt: skip
    """What is computed for a block of k: codes, the sums of products, and the total."""
    is_inline = plan.algorithm == "packed_rows" and plan.dot is None
    if is_inline:
        sch.compute_inline(blocks.codes)
    sch.compute_at(blocks.partial, loops.row_tile)
    if plan.algorithm == "packed_tiles":
        sch.compute_at(blocks.codes, loops.k)
    zero_total = sch.decompose_reduction(blocks.total, loops.k)
    sch.vectorize(loops.lane)
    for loop in (loops.row, loops.vectors):
        sch.unroll(loop)
    _vectorize(sch, target, zero_total)
    sch.set_scope(blocks.partial, ir.THREAD)
    lanes = _partial_loops(sch, plan, blocks, words)
    if not is_inline:
        _decode_loops(sch, plan, blocks.codes, words)
        sch.set_scope(blocks.codes, ir.THREAD)
    if plan.dot is None:
        sch.vectorize(lanes)
    else:
        sch.tensorize(lanes, _instruction(target, plan))


def _partial_loops(
    sch: Schedule, plan: ContractionPlan, blocks: PackedBlocks, words: Words
) -> LoopRef:
    """Words outside; the codes of a word, rows and vectors unrolled. The loop over lanes."""
    assert plan.tile is not None
    *others, column, k = own_loops(sch, blocks.partial)
    terms: list[LoopRef] = []
    if plan.dot is None:
        word_loop, code = sch.split(k, None, words.codes)
    else:
        word_loop, code, term = sch.split(k, None, words.codes // plan.dot, plan.dot)
        terms = [term]
    vectors, lanes = sch.split(column, None, plan.tile.lanes)
    sch.reorder(word_loop, code, *others, vectors, lanes, *terms)
    if plan.dot is not None:
        zero = sch.decompose_reduction(blocks.partial, word_loop)
        sch.vectorize(own_loops(sch, zero)[-1])
        for loop in own_loops(sch, zero)[:-1]:
            sch.unroll(loop)
        if plan.algorithm == "packed_rows":
            sch.compute_at(blocks.codes, word_loop)
    for loop in (code, *others, vectors):
        sch.unroll(loop)
    return lanes


def _instruction(target: Target, plan: ContractionPlan) -> ir.Instruction:
    assert plan.tile is not None and plan.dot is not None
    found = code_dot(target, plan.dot, plan.tile.lanes)
    if found is None:
        why = f"the plan has dot={plan.dot} and vectors of {plan.tile.lanes} lanes"
        raise IngotError("bad-schedule", f"{target.name} has no such dot product", why=why)
    return found


def _decode_loops(sch: Schedule, plan: ContractionPlan, ref: BlockRef, words: Words) -> None:
    """For each vector of words, the codes of one word after the other."""
    assert plan.tile is not None
    k, column = own_loops(sch, ref)[:2]
    word_loop, code = sch.split(k, None, words.codes // (plan.dot or 1))
    vectors, lanes = sch.split(column, None, plan.tile.lanes)
    rest = own_loops(sch, ref)[-1:] if plan.dot is not None else []
    sch.reorder(word_loop, vectors, code, lanes, *rest)
    sch.vectorize(sch.fuse(lanes, *rest) if rest else lanes)
    for loop in (code, vectors):
        sch.unroll(loop)


def _row_reductions(sch: Schedule) -> list[BlockRef]:
    """Sums and maxima of blocks of x."""
    return [info.ref for info in top_nests(sch) if info.is_reduction]


def _row_reduction(sch: Schedule, target: Target, ref: BlockRef) -> bool:
    """Partial results in lanes, for one block of a row after the other; False if refused."""
    with sch.attempt(ref):
        partial = rfactor_lanes(sch, target, block_info_of(sch, ref), vectors=1)
        if partial is None:
            return False
        *outer, lanes = own_loops(sch, ref)
        sch.compute_at(partial, outer[-1])
        *ones, lane, k = [x for x in own_loops(sch, partial) if extent(sch, x) != 1]
        sch.reorder(*ones, k, lane)
        sch.vectorize(lane)
        sch.set_scope(partial, ir.THREAD)
        is_big = has_work(sch, block_info_of(sch, ref))
        vectorize_final_reduction(sch, target, block_info_of(sch, ref), lanes)
        if is_big:
            sch.parallel(sch.fuse(*outer) if len(outer) > 1 else outer[0])
        return True
    return False


def _vectorize(sch: Schedule, target: Target, ref: BlockRef) -> None:
    vectorize_loop(sch, target, block_info_of(sch, ref), own_loops(sch, ref)[-1])

"""Apply: attention, softmax(Q·Kᵀ·scale + mask)·V, two GEMMs and a row reduction in one nest.

    for heads, row tiles (parallel):
        for panels of K:  a register tile of scores; scale and mask in its epilogue → scratch
        the blocks of the softmax, one after the other, for the rows of the tile
        for panels of V:  a register tile of the output, from the scratch

The scores of a few rows are in thread-local scratch; the whole score matrix is never stored. K and
V are packed into panels before, by nests of their own, which this rule leaves as they are. In: a
kernel with two GEMMs, not inlined yet, and a plan for each (cost/attention.py). A refused step is
an error.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.cost.plan import ContractionPlan
from ingot.cost.tile import Tile
from ingot.loops import ir
from ingot.loops.ir import Axis
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.base import Rules
from ingot.schedule.rules.block_info import (
    BlockInfo,
    block_info_of,
    block_infos,
    extent,
    index_vars,
    loop_of,
    own_loops,
)
from ingot.schedule.rules.elementwise import vectorize_and_unroll, vectorize_loop
from ingot.schedule.rules.generic import schedule_generic
from ingot.schedule.rules.inline import inline_elementwise
from ingot.schedule.rules.micro_kernel import TileLoops, micro_kernel
from ingot.schedule.rules.packing import pack_operand
from ingot.schedule.rules.roles import is_contraction
from ingot.schedule.rules.row_reduction import rfactor_lanes, vectorize_final_reduction
from ingot.schedule.schedule import Schedule
from ingot.support.errors import IngotError
from ingot.target import Target


@dataclass(frozen=True)
class AttentionBlocks:
    """The blocks of an attention kernel, in order."""

    queries: list[BlockRef]  # the producers of the first GEMM's left operand
    first: BlockRef  # Q·Kᵀ
    scores: BlockRef  # the last element-wise block before the row reductions
    rows: list[BlockRef]  # the softmax
    second: BlockRef  # scores·V
    out: BlockRef

    @property
    def before_second(self) -> list[BlockRef]:
        return [*self.queries, self.first, self.scores, *self.rows]


def prepare_attention(sch: Schedule) -> None:
    """Inline all element-wise blocks but the scores."""
    first, _ = gemms(sch)
    inline_elementwise(sch, keep=(_scores(sch, first),))


def apply_attention(sch: Schedule, target: Target, rules: Rules) -> None:
    """One nest for all but the packing of K and V; the packing by the generic rule."""
    _one_nest(sch, target)
    schedule_generic(sch, target, rules)


def _one_nest(sch: Schedule, target: Target) -> None:
    first, second = gemms(sch)
    scores = _scores(sch, first)
    plans = {ref: _plan(sch, ref) for ref in (first, second)}
    packed = {ref: _pack(sch, ref, plan) for ref, plan in plans.items()}
    blocks = _find_blocks(sch, first, scores, second)
    _pad(sch, blocks, plans, packed)
    partial = _rfactor_row_reductions(sch, target, blocks)
    parallel_loop, panel = _tile_output(sch, blocks, _tile(plans[second]))
    sch.compute_at(second, panel)
    _gemm_tile(sch, target, second, plans[second])
    vectorize_and_unroll(sch, target, blocks.out)
    inner = [x for ref in blocks.before_second for x in (partial.get(ref), ref) if x is not None]
    for ref in reversed(inner):
        sch.compute_at(ref, parallel_loop)
    _scores_tile(sch, target, blocks, plans[first])
    for ref in (*inner, second):
        sch.set_scope(ref, ir.THREAD)
    for ref in inner:
        if ref not in (first, scores):
            rank, full_rank = (len(block_info_of(sch, x).spatial) for x in (ref, first))
            _row_block(sch, target, ref, ref in partial.values(), rank == full_rank)
    sch.parallel(parallel_loop)


def _plan(sch: Schedule, ref: BlockRef) -> ContractionPlan:
    plan = sch.plans.get(ref.name)
    if plan is None or plan.algorithm != "attention" or plan.tile is None:
        raise _error(f"the plan of {ref.name} is {plan}")
    return plan


def _tile(plan: ContractionPlan) -> Tile:
    assert plan.tile is not None
    return plan.tile


def _error(why: str) -> IngotError:
    return IngotError("bad-schedule", f"attention: {why}")


# --- finding the blocks -------------------------------------------------------------------------


def gemms(sch: Schedule) -> tuple[BlockRef, BlockRef]:
    found = [s for s in block_infos(sch) if s.is_reduction and is_contraction(s)]
    if len(found) != 2:
        raise _error(f"there are {len(found)} GEMMs, not two")
    return found[0].ref, found[1].ref


def _scores(sch: Schedule, first: BlockRef) -> BlockRef:
    """The last of the element-wise blocks after the first GEMM; a copy where there is none."""
    found, readers = first, _readers(sch, first)
    while len(readers) == 1 and readers[0].is_elementwise:
        found, readers = readers[0].ref, _readers(sch, readers[0].ref)
    return sch.cache_write(first) if found == first else found


def _readers(sch: Schedule, ref: BlockRef) -> list[BlockInfo]:
    made = block_info_of(sch, ref).outputs
    others = [s for s in block_infos(sch) if s.ref != ref]
    return [s for s in others if any(x.buffer.name in made for x in s.loads)]


def _find_blocks(
    sch: Schedule, first: BlockRef, scores: BlockRef, second: BlockRef
) -> AttentionBlocks:
    """The blocks from the first GEMM on, and the producers of its left operand."""
    reached: set[str] = set()
    after: list[BlockRef] = []
    for info in block_infos(sch):
        if info.ref == first or any(x.buffer.name in reached for x in info.loads):
            reached |= info.outputs
            after.append(info.ref)
    if after[:2] != [first, scores] or after[-2:-1] != [second]:
        raise _error("its blocks do not form one chain")
    gemm = block_info_of(sch, first)
    lanes = row_and_lane_axes(gemm)[1].var
    left = {x.buffer.name for x in gemm.loads if not any(lanes in index_vars(i) for i in x.indices)}
    queries = [s.ref for s in block_infos(sch) if s.is_elementwise and s.outputs & left]
    return AttentionBlocks(queries, first, scores, after[2:-2], second, after[-1])


def row_and_lane_axes(info: BlockInfo) -> tuple[Axis, Axis]:
    if len(info.spatial) < 2 or info.spatial[-1].extent == 1:
        raise _error("a GEMM has no rows, or a single column")
    return info.spatial[-2], info.spatial[-1]


# --- panels, tiles and padding ------------------------------------------------------------------


def _pack(sch: Schedule, ref: BlockRef, plan: ContractionPlan) -> bool:
    """Is the operand in panels, given so or packed here?"""
    if plan.packing is None or plan.packing.by == "given":
        return plan.packing is not None
    with sch.attempt(ref):
        pack_operand(sch, block_info_of(sch, ref), plan)
        return True
    return False


def _pad(
    sch: Schedule,
    blocks: AttentionBlocks,
    plans: dict[BlockRef, ContractionPlan],
    packed: dict[BlockRef, bool],
) -> None:
    """Pad every block to whole row tiles, producers first, so that each reads padded operands; the
    GEMMs to whole panels."""
    row_axis = len(block_info_of(sch, blocks.first).spatial) - 2
    for ref in (*blocks.before_second, blocks.second):
        info = block_info_of(sch, ref)
        if ref == blocks.second:  # leading axes of extent 1 may have been dropped
            row_axis = len(info.spatial) - 2
        if not 0 <= row_axis < len(info.spatial):
            raise _error("its blocks have axes of extent 1 at different positions")
        wanted = {info.spatial[row_axis].var: _tile(plans[blocks.first]).rows}
        if packed.get(ref):
            wanted[info.spatial[-1].var] = _tile(plans[ref]).columns
        sch.pad(ref, *(wanted.get(a.var, 1) for a in info.block.axes))


def _rfactor_row_reductions(
    sch: Schedule, target: Target, blocks: AttentionBlocks
) -> dict[BlockRef, BlockRef]:
    """Row reductions with partial results in lanes: reduction → the block of partial results."""
    found: dict[BlockRef, BlockRef] = {}
    for ref in blocks.rows:
        if block_info_of(sch, ref).is_reduction:
            with sch.attempt(ref):
                # one vector each: the rows of a tile give enough independent chains
                made = rfactor_lanes(sch, target, block_info_of(sch, ref), vectors=1)
                found |= {} if made is None else {ref: made}
    return found


# --- the nest -----------------------------------------------------------------------------------


def _tile_output(sch: Schedule, blocks: AttentionBlocks, tile: Tile) -> tuple[LoopRef, LoopRef]:
    """Tile the last block; the loop over row tiles, and the loop over panels in it."""
    out, made = block_info_of(sch, blocks.out), block_info_of(sch, blocks.second).outputs
    loads = [x for x in out.loads if x.buffer.name in made]
    if not out.is_elementwise or len(loads) != 1:
        raise _error("the last block is not an element-wise reader of the second GEMM")
    loops = {arith.Var(a.var): loop_of(sch, out, a) for a in out.block.axes}
    row, lane = (loops.get(i) if isinstance(i, arith.Var) else None for i in loads[0].indices[-2:])
    if row is None or lane is None:
        raise _error("the output of the second GEMM is not read along its rows")
    outer = [x for x in loops.values() if x is not None and x not in (row, lane)]
    row_tile, row = sch.split(row, None, tile.rows)
    panel, lane = sch.split(lane, None, tile.columns)
    sch.reorder(*outer, row_tile, panel, row, lane)
    return (sch.fuse(*outer, row_tile) if outer else row_tile), panel


def _gemm_tile(sch: Schedule, target: Target, ref: BlockRef, plan: ContractionPlan) -> None:
    """A register tile of a GEMM, under the loop over panels."""
    info, own = block_info_of(sch, ref), own_loops(sch, ref)
    row, lane = (_loop_for(own, a) for a in info.spatial[-2:])
    k = [x for x in own if any(_feeds(x, a) for a in info.reduced)]
    outer = [x for x in own if x not in (*k, row, lane)]
    micro_kernel(sch, target, ref, plan, TileLoops(outer, k, row, lane))


def _feeds(loop: LoopRef, axis: Axis) -> bool:
    return loop.name in arith.free_vars(axis.binding)


def _loop_for(own: list[LoopRef], axis: Axis) -> LoopRef:
    found = [x for x in own if _feeds(x, axis)]
    if len(found) != 1:
        raise _error(f"{len(found)} loops feed the axis {axis.var}, not one")
    return found[0]


def _scores_tile(
    sch: Schedule, target: Target, blocks: AttentionBlocks, plan: ContractionPlan
) -> None:
    """The first GEMM, one panel at a time, with its element-wise consumers in the epilogue."""
    info, own = block_info_of(sch, blocks.scores), own_loops(sch, blocks.scores)
    row, lane = (_loop_for(own, a) for a in info.spatial[-2:])
    outer = [x for x in own if x not in (row, lane)]
    panel, lane = sch.split(lane, None, _tile(plan).columns)
    sch.reorder(*outer, panel, row, lane)
    sch.compute_at(blocks.first, panel)
    _gemm_tile(sch, target, blocks.first, plan)
    vectorize_and_unroll(sch, target, blocks.scores)


def _row_block(
    sch: Schedule, target: Target, ref: BlockRef, is_partial: bool, is_matrix: bool
) -> None:
    """Vectorise a block along the rows; partial results of all rows are interleaved. A block with
    one value per row is not vectorised: a tile has fewer rows than lanes."""
    info = block_info_of(sch, ref)
    loops = [x for x in own_loops(sch, ref) if extent(sch, x) != 1]
    reduced = [x for x in loops if any(_feeds(x, a) for a in info.reduced)]
    if is_partial:
        lane, *others = [x for x in loops if x not in reduced]
        sch.reorder(*reduced, *others, lane)
        sch.vectorize(lane)
        for loop in others:
            sch.unroll(loop)
    elif len(reduced) == 1:
        vectorize_final_reduction(sch, target, info, reduced[0])
    elif loops and info.is_elementwise and is_matrix:
        vectorize_loop(sch, target, info, loops[-1])
    else:
        sch.remark(ref, ir.SCALAR_CODE, "one value per row")

"""Rule: attention, softmax(Q·Kᵀ·scale + mask)·V, two GEMMs and a row reduction in one nest.

    for heads, row tiles (parallel):
        for panels of K:  a register tile of scores; scale and mask in its epilogue → scratch
        the blocks of the softmax, one after the other, for the rows of the tile
        for panels of V:  a register tile of the output, from the scratch

The scores of a few rows are in thread-local scratch; the whole score matrix is never stored. K and
V are packed into panels before, by nests of their own, which this rule leaves as they are. In: a
kernel with two GEMMs, not inlined yet. Out: whether it was scheduled; if not, nothing has changed.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.cost import contraction as cost
from ingot.loops import ir
from ingot.loops.ir import Axis
from ingot.schedule.handles import BlockRef, LoopRef
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
from ingot.schedule.rules.inline import inline_elementwise
from ingot.schedule.rules.k_unroll import unroll_k
from ingot.schedule.rules.packing import pack_operand
from ingot.schedule.rules.roles import Roles, is_contraction, panel_width
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


def schedule_attention(sch: Schedule, target: Target) -> bool:
    """One nest for all but the packing of K and V; False if a step is illegal."""
    with sch.attempt():
        _one_nest(sch, target)
        return True
    return False


def _one_nest(sch: Schedule, target: Target) -> None:
    first, second = _gemms(sch)
    scores = _scores(sch, first)
    inline_elementwise(sch, keep=(scores,))
    rows, widths = _tile_sizes(sch, target, (first, second))
    for gemm in (first, second):
        info = block_info_of(sch, gemm)
        pack_operand(sch, info, _roles(info), widths[gemm])
    blocks = _find_blocks(sch, first, scores, second)
    _pad(sch, blocks, rows, widths)
    partial = _rfactor_row_reductions(sch, target, blocks)
    parallel_loop, panel = _tile_output(sch, blocks, rows, widths[second])
    sch.compute_at(second, panel)
    _gemm_tile(sch, target, second)
    vectorize_and_unroll(sch, target, blocks.out)
    inner = [x for ref in blocks.before_second for x in (partial.get(ref), ref) if x is not None]
    for ref in reversed(inner):
        sch.compute_at(ref, parallel_loop)
    _scores_tile(sch, target, blocks, widths[first])
    for ref in (*inner, second):
        sch.set_scope(ref, ir.THREAD)
    for ref in inner:
        if ref not in (first, scores):
            rank, full_rank = (len(block_info_of(sch, x).spatial) for x in (ref, first))
            _row_block(sch, target, ref, ref in partial.values(), rank == full_rank)
    sch.parallel(parallel_loop)


def _error(why: str) -> IngotError:
    return IngotError("bad-schedule", f"attention: {why}")


# --- finding the blocks -------------------------------------------------------------------------


def _gemms(sch: Schedule) -> tuple[BlockRef, BlockRef]:
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
    lanes = _roles(gemm).lanes.var
    left = {x.buffer.name for x in gemm.loads if not any(lanes in index_vars(i) for i in x.indices)}
    queries = [s.ref for s in block_infos(sch) if s.is_elementwise and s.outputs & left]
    return AttentionBlocks(queries, first, scores, after[2:-2], second, after[-1])


def _roles(info: BlockInfo) -> Roles:
    if len(info.spatial) < 2 or info.spatial[-1].extent == 1:
        raise _error("a GEMM has no rows, or a single column")
    return Roles(info.spatial[-1], info.spatial[-2])


# --- panels, tiles and padding ------------------------------------------------------------------


def _tile_sizes(
    sch: Schedule, target: Target, gemms: tuple[BlockRef, ...]
) -> tuple[int, dict[BlockRef, int]]:
    """Rows of a tile, the same for both GEMMs, and the panel width of each."""
    shapes = []
    for ref in gemms:
        info = block_info_of(sch, ref)
        roles = _roles(info)
        columns, depth = (arith.as_int(a.extent) for a in (roles.lanes, info.reduced[-1]))
        lanes, panel = target.lanes(info.dtype), panel_width(info, roles.lanes)
        lanes = lanes if columns is None or panel else min(lanes, columns)
        shapes.append(cost.GemmShape(columns, depth, lanes, panel))
        rows = arith.as_int(info.spatial[-2].extent)
    made = cost.common_row_tiles(rows, shapes, target.vector_registers)
    widths = [shape.panel or tile.columns for shape, tile in zip(shapes, made)]
    return made[0].rows, dict(zip(gemms, widths))


def _pad(sch: Schedule, blocks: AttentionBlocks, rows: int, widths: dict[BlockRef, int]) -> None:
    """Pad every block to whole row tiles, producers first, so that each reads padded operands; the
    GEMMs to whole panels."""
    row_axis = len(block_info_of(sch, blocks.first).spatial) - 2
    for ref in (*blocks.before_second, blocks.second):
        info = block_info_of(sch, ref)
        if ref == blocks.second:  # leading axes of extent 1 may have been dropped
            row_axis = len(info.spatial) - 2
        if not 0 <= row_axis < len(info.spatial):
            raise _error("its blocks have axes of extent 1 at different positions")
        wanted = {info.spatial[row_axis].var: rows}
        if ref in widths and panel_width(info, info.spatial[-1]) is not None:
            wanted[info.spatial[-1].var] = widths[ref]
        sch.pad(ref, *(wanted.get(a.var, 1) for a in info.block.axes))


def _rfactor_row_reductions(
    sch: Schedule, target: Target, blocks: AttentionBlocks
) -> dict[BlockRef, BlockRef]:
    """Row reductions with partial results in lanes: reduction → the block of partial results."""
    found: dict[BlockRef, BlockRef] = {}
    for ref in blocks.rows:
        if block_info_of(sch, ref).is_reduction:
            with sch.attempt():
                # one vector each: the rows of a tile give enough independent chains
                made = rfactor_lanes(sch, target, block_info_of(sch, ref), vectors=1)
                found |= {} if made is None else {ref: made}
    return found


# --- the nest -----------------------------------------------------------------------------------


def _tile_output(
    sch: Schedule, blocks: AttentionBlocks, rows: int, width: int
) -> tuple[LoopRef, LoopRef]:
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
    row_tile, row = sch.split(row, None, rows)
    panel, lane = sch.split(lane, None, width)
    sch.reorder(*outer, row_tile, panel, row, lane)
    return (sch.fuse(*outer, row_tile) if outer else row_tile), panel


def _gemm_tile(sch: Schedule, target: Target, ref: BlockRef) -> None:
    """A register tile of a GEMM: k outside, rows and vectors unrolled."""
    info, own = block_info_of(sch, ref), own_loops(sch, ref)
    row, lane = (_loop_for(own, a) for a in info.spatial[-2:])
    reduced = [x for x in own if any(_feeds(x, a) for a in info.reduced)]
    outer = [x for x in own if x not in (*reduced, row, lane)]
    lanes, width = target.lanes(info.dtype), extent(sch, lane)
    vectors: list[LoopRef] = []
    if width is not None and width > lanes and width % lanes == 0:
        *vectors, lane = sch.split(lane, None, lanes)
    sch.reorder(*outer, *reduced, row, *vectors, lane)
    sch.vectorize(lane)
    for loop in (row, *vectors):
        sch.unroll(loop)
    if reduced:  # K = 1 has no loop
        unroll_k(sch, extent(sch, row), reduced[-1])


def _feeds(loop: LoopRef, axis: Axis) -> bool:
    return loop.name in arith.free_vars(axis.binding)


def _loop_for(own: list[LoopRef], axis: Axis) -> LoopRef:
    found = [x for x in own if _feeds(x, axis)]
    if len(found) != 1:
        raise _error(f"{len(found)} loops feed the axis {axis.var}, not one")
    return found[0]


def _scores_tile(sch: Schedule, target: Target, blocks: AttentionBlocks, width: int) -> None:
    """The first GEMM, one panel at a time, with its element-wise consumers in the epilogue."""
    info, own = block_info_of(sch, blocks.scores), own_loops(sch, blocks.scores)
    row, lane = (_loop_for(own, a) for a in info.spatial[-2:])
    outer = [x for x in own if x not in (row, lane)]
    panel, lane = sch.split(lane, None, width)
    sch.reorder(*outer, panel, row, lane)
    sch.compute_at(blocks.first, panel)
    _gemm_tile(sch, target, blocks.first)
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

"""Rule: reductions in register tiles: GEMM, convolution, pooling; with packing and cache blocking.

    for outer tiles (parallel): for k…: for rows (unrolled): for vectors (unrolled): for lanes
                                for rows, vectors, lanes of the epilogue

The lanes are along the output's last axis, the rows along an axis that the vector loads do not
depend on, so that a loaded vector is used for every row. The consumer of the result is fused into
the epilogue of the tile. In: a top-level nest around one reduction. Out: the tiled nest, or a
scalar one where the access pattern cannot be vectorised.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.cost import contraction as cost
from ingot.loops.ir import Axis
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.block_info import (
    BlockInfo,
    block_info_of,
    block_infos,
    elements,
    extent,
    index_vars,
    loop_of,
    own_loops,
)
from ingot.schedule.rules.depthwise import copy_input_per_block, depthwise_loop_order
from ingot.schedule.rules.elementwise import MAX_UNROLL, PARALLEL_WORK, vectorize_and_unroll
from ingot.schedule.rules.k_unroll import unroll_k
from ingot.schedule.rules.packing import (
    pack_operand,
    pack_per_panel,
    prefetch_next_panel,
    split_for_prefetch,
)
from ingot.schedule.rules.partial_sums import split_partial_sums
from ingot.schedule.rules.roles import (
    MIN_ROWS_TO_PACK,
    Roles,
    depends_on,
    find_roles,
    is_column_reduction,
    is_contiguous,
    is_depthwise,
    panel_width,
    size_of,
    varies_by_lane,
)
from ingot.schedule.rules.small_m_gemm import schedule_small_m_gemm, split_column_reduction
from ingot.schedule.schedule import Schedule
from ingot.support import knobs
from ingot.target import Target


def schedule_reduction(sch: Schedule, target: Target, info: BlockInfo, eager: bool) -> None:
    """Schedule a top-level reduction nest. `eager` vectorises even where no load is contiguous."""
    is_big = _has_work(sch, info)
    consumer = _consumer(sch, info)
    if any(loop_of(sch, info, a) is None for a in info.block.axes if a.extent != 1):
        return  # the remainder of a nest that was scheduled before
    packed = find_roles(info, eager=True)
    if packed is None or not pack_operand(sch, info, packed, _tile(target, info, packed).columns):
        packed = None
    roles = packed or find_roles(info, eager)
    parallel_loop: LoopRef | None = None
    is_small_m = roles is not None and packed is None and _is_small_m_gemm(info, roles)
    if roles is not None and is_small_m and knobs.current().small_m_gemm:
        rows = 1 if roles.rows is None else size_of(roles.rows)
        parallel_loop = schedule_small_m_gemm(sch, target, info, rows, consumer)
    if roles is not None and parallel_loop is None:
        with sch.attempt():
            info = block_info_of(sch, info.ref)
            parallel_loop = _register_tiled(sch, target, info, roles, consumer)
    if parallel_loop is None:
        parallel_loop = _scalar_nest(sch, target, block_info_of(sch, info.ref), consumer)
    if parallel_loop is not None and is_big:
        with sch.attempt():
            sch.parallel(parallel_loop)


def schedule_column_reduction(sch: Schedule, target: Target, info: BlockInfo) -> bool:
    """Reduce one array to one row, its rows split between threads; False if that is illegal."""
    if not knobs.current().small_m_gemm or not is_column_reduction(info):
        return False
    if not _has_work(sch, info):
        return False
    parallel_loop = split_column_reduction(sch, target, info, _consumer(sch, info))
    if parallel_loop is None:
        return False
    with sch.attempt():
        sch.parallel(parallel_loop)
    return True


def _is_small_m_gemm(info: BlockInfo, roles: Roles) -> bool:
    """Is it a GEMM or GEMV of few rows whose operand B is row-major and not packed?"""
    rows = 1 if roles.rows is None else size_of(roles.rows)
    vector_loads = [x for x in info.loads if varies_by_lane(info, x, roles.lanes)]
    if rows >= MIN_ROWS_TO_PACK or len(vector_loads) != 1:
        return False
    if panel_width(info, roles.lanes) is not None:
        return False
    plain = all(isinstance(i, arith.Var | arith.Const) for x in info.loads for i in x.indices)
    return plain and len(info.loads) == 2 and is_contiguous(info, vector_loads[0], roles.lanes)


def _has_work(sch: Schedule, info: BlockInfo) -> bool:
    count = elements(sch, info)
    return count is None or count >= 2 * PARALLEL_WORK


def _consumer(sch: Schedule, info: BlockInfo) -> BlockRef | None:
    """The only reader of the result, if it is element-wise."""
    readers = [
        s for s in block_infos(sch) if s.ref != info.ref and any(_reads(s, n) for n in info.outputs)
    ]
    return readers[0].ref if len(readers) == 1 and readers[0].is_elementwise else None


def _reads(info: BlockInfo, name: str) -> bool:
    return any(x.buffer.name == name for x in info.loads)


def _register_tiled(
    sch: Schedule, target: Target, info: BlockInfo, roles: Roles, consumer: BlockRef | None
) -> LoopRef:
    """Tile, reorder, vectorise and unroll the nest; the loop to parallelise."""
    tile = _tile(target, info, roles)
    per_block = _tiles_per_block(target, info, roles, tile)
    _pad_to_tiles(sch, info, roles, tile, per_block or 1)
    lane_loop = _required(loop_of(sch, info, roles.lanes))
    row_loop = loop_of(sch, info, roles.rows) if roles.rows is not None else None
    reduced = [_required(loop_of(sch, info, a)) for a in _reduce_order(info, roles)]
    outer = [x for x in own_loops(sch, info.ref) if x not in (*reduced, lane_loop, row_loop)]
    batch = _batch_loops(sch, info, outer)
    outer = [*batch, *(x for x in outer if x not in batch)]
    panel, lane_inner = sch.split(lane_loop, None, tile.columns)
    vectors, lanes = _lanes(sch, lane_inner, tile)
    inner = [*vectors, lanes]
    row_inner = order = None
    if row_loop is None or tile.rows == 1:
        outer += [panel] if row_loop is None else [panel, row_loop]
    else:
        row_tile, row_inner = sch.split(row_loop, None, tile.rows)
        inner.insert(0, row_inner)
        order = depthwise_loop_order(sch, target, info, roles, tile, [*outer, row_tile, panel])
        rows = [*outer[len(batch) :], row_tile]
        outer = order.loops if order else [*batch, *_cache_blocked(sch, rows, panel, per_block)]
    sch.reorder(*outer, *reduced, *inner)
    is_ordered = row_inner is not None and panel in outer
    over_rows = outer[outer.index(panel) + 1 :] if is_ordered else []
    prefetched = split_for_prefetch(sch, target, info, roles, over_rows, reduced)
    reduced = split_partial_sums(sch, target, info, reduced)
    if prefetched is not None:
        prefetch_next_panel(sch, prefetched, panel, reduced[-2])
    loops = copy_input_per_block(sch, target, order) if order else None
    if outer[0] == panel:
        loops = pack_per_panel(sch, target, info, roles, outer)
    if loops is None:
        loops = (sch.fuse(*outer) if len(outer) > 1 else outer[0],) * 2
    parallel_loop, epilogue_loop = loops
    if consumer is not None:
        with sch.attempt():
            _fuse_epilogue(sch, target, consumer, epilogue_loop)
    sch.vectorize(lanes)
    for loop in [*vectors, *([row_inner] if row_inner is not None else [])]:
        sch.unroll(loop)
    if not tile.is_depthwise:
        unroll_k(sch, tile.rows, reduced[-1])
    elif (extent(sch, reduced[-1]) or MAX_UNROLL) < MAX_UNROLL:
        sch.unroll(reduced[-1])  # adjacent rows load the same vectors, one tap apart
    return parallel_loop


def _tile(target: Target, info: BlockInfo, roles: Roles) -> cost.Tile:
    rows = 1 if roles.rows is None else arith.as_int(roles.rows.extent)
    columns = arith.as_int(roles.lanes.extent)
    lanes, panel = target.lanes(info.dtype), panel_width(info, roles.lanes)
    if panel is not None and panel % lanes:
        is_grouped = any(
            depends_on(x, roles.lanes) and not varies_by_lane(info, x, roles.lanes)
            for x in info.loads
        )
        fitting = cost.lanes_dividing(panel, lanes) if is_grouped else None
        lanes, panel = fitting or lanes, panel if fitting else None  # else not packed for tiles
    if panel is None and columns is not None and columns < lanes:
        lanes = max(columns, 1)
    no_reuse = roles.rows is not None and is_depthwise(info, roles.lanes, roles.rows)
    return cost.register_tile(rows, columns, lanes, target.vector_registers, panel, no_reuse)


def _pad_to_tiles(
    sch: Schedule, info: BlockInfo, roles: Roles, tile: cost.Tile, per_block: int
) -> None:
    """Pad the block to whole tiles; nothing reads what is computed beyond the end."""
    wanted: dict[str, int] = {}
    if panel_width(info, roles.lanes) is not None:  # else vectors would become gathers
        wanted[roles.lanes.var] = tile.columns
    if roles.rows is not None:
        wanted[roles.rows.var] = tile.rows * per_block
    with sch.attempt():
        sch.pad(info.ref, *(wanted.get(a.var, 1) for a in info.block.axes))


def _reduce_order(info: BlockInfo, roles: Roles) -> list[Axis]:
    """The reduce axes, innermost the one along which the scalar loads are contiguous."""
    last = {
        name
        for x in info.loads
        if not varies_by_lane(info, x, roles.lanes)
        for name in (index_vars(x.indices[-1]) if x.indices else ())
    }
    return sorted(info.reduced, key=lambda a: a.var in last)


def _tiles_per_block(target: Target, info: BlockInfo, roles: Roles, tile: cost.Tile) -> int | None:
    if roles.rows is None or tile.rows == 1 or not knobs.current().cache_blocks:
        return None
    size = info.dtype.storage_bytes
    rows, columns = arith.as_int(roles.rows.extent), arith.as_int(roles.lanes.extent)
    depth = arith.as_int(arith.product([a.extent for a in info.reduced]))
    own_depth = arith.as_int(arith.product([a.extent for a in _non_overlapping_axes(info, roles)]))
    return cost.row_tiles_per_block(
        None if rows is None else -(-rows // tile.rows),
        None if own_depth is None else own_depth * tile.rows * size,
        None if depth is None or columns is None else depth * columns * size,
        target.caches,
    )


def _non_overlapping_axes(info: BlockInfo, roles: Roles) -> list[Axis]:
    """The reduce axes along which rows share no elements; along window taps they overlap."""
    scalar_loads = [x for x in info.loads if not varies_by_lane(info, x, roles.lanes)]
    alone = {i.name for x in scalar_loads for i in x.indices if isinstance(i, arith.Var)}
    return [a for a in info.reduced if a.var in alone]


def _batch_loops(sch: Schedule, info: BlockInfo, loops: list[LoopRef]) -> list[LoopRef]:
    """Those of `loops` over a batch: iterations that share no operand."""
    if len(info.loads) < 2:
        return []
    axes = [a for a in info.spatial if all(depends_on(x, a) for x in info.loads)]
    return [x for x in (loop_of(sch, info, a) for a in axes) if x in loops]


def _cache_blocked(
    sch: Schedule, rows: list[LoopRef], panel: LoopRef, per_block: int | None
) -> list[LoopRef]:
    """Panels outside, row tiles inside; in blocks of rows (M) where all would not stay in cache."""
    if per_block is None:
        return [panel, *rows]
    if per_block == 1:
        return [*rows, panel]
    block, within = sch.split(rows[-1], None, per_block)
    return [*rows[:-1], block, panel, within]


def _required(loop: LoopRef | None) -> LoopRef:
    assert loop is not None, "each axis of the block has a loop"
    return loop


def _lanes(sch: Schedule, loop: LoopRef, tile: cost.Tile) -> tuple[list[LoopRef], LoopRef]:
    if tile.vectors == 1:
        return [], loop
    vectors, lanes = sch.split(loop, tile.vectors, tile.lanes)
    return [vectors], lanes


def _fuse_epilogue(sch: Schedule, target: Target, consumer: BlockRef, loop: LoopRef) -> None:
    """Fuse the consumer into the tile, fully unrolled, so that the tile may stay in registers."""
    sch.reverse_compute_at(consumer, loop)
    vectorize_and_unroll(sch, target, consumer)


def _scalar_nest(
    sch: Schedule, target: Target, info: BlockInfo, consumer: BlockRef | None
) -> LoopRef | None:
    """Not vectorised: one output at a time, its consumer after it. The last loop is not fused, to
    save the divisions that recover the indices, unless the others are too short for the threads."""
    outer = [x for x in (loop_of(sch, info, a) for a in info.spatial) if x is not None]
    own = own_loops(sch, info.ref)
    if not outer or own[: len(outer)] != outer:
        return None
    count = arith.as_int(arith.product([sch.at_loop(x).extent for x in outer[:-1]]))
    keep_last = count is None or count >= 4 * target.cores
    first = outer[:-1] if keep_last else outer
    parallel_loop = sch.fuse(*first) if len(first) > 1 else first[0]
    if consumer is not None:
        with sch.attempt():
            sch.reverse_compute_at(consumer, outer[-1] if keep_last else parallel_loop)
    return parallel_loop

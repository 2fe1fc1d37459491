"""Decide: GEMM and convolution in register tiles: tile, packing, cache blocks, prefetch, k-unroll.

In: a Contraction and the target. Out: plans, the preferred one first. The panels of an operand that
is packed already fix the tile's columns; else it is packed where enough rows use the panels.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ingot.cost import contraction as cost
from ingot.cost.plan import Blocking, ContractionPlan, Packing
from ingot.cost.shape import Contraction, product
from ingot.cost.tile import Tile
from ingot.support import options
from ingot.target import Target

MIN_ROWS_TO_PACK = 24  # rows (M) from which packing the other operand into panels pays; heuristic
MAX_UNPACKED_COLUMNS = 64  # heuristic: dense rows of at most so many elements need no packing
MAX_ROW_TILES_TO_PREFETCH = 64  # heuristic: more row tiles per panel hide the memory latency


def decide_gemm(c: Contraction, target: Target) -> list[ContractionPlan]:
    is_gemm = c.is_contraction and c.window is None
    return _unrolled("gemm", c, target) if is_gemm else []


def decide_reduction(c: Contraction, target: Target) -> list[ContractionPlan]:
    """The same for a reduction that is no contraction: pooling, sums along an outer axis."""
    is_plain = not c.is_contraction and c.window is None and not c.is_column_sum
    return _unrolled("reduction", c, target) if is_plain else []


def register_tiled(algorithm: str, c: Contraction, target: Target) -> list[ContractionPlan]:
    """Plans with a register tile: packed, and as the operand is."""
    found = []
    if (width := packed_width(c, target)) is not None:
        found.append(_plan(algorithm, c, target, Packing("kernel", width)))
    if c.is_contiguous:
        given = None if c.operand.panel is None else Packing("given", c.operand.panel)
        found.append(_plan(algorithm, c, target, given))
    return found


def packed_width(c: Contraction, target: Target, width: int | None = None) -> int | None:
    """The width of the panels that the kernel packs the operand into; None: it is not worth it."""
    if c.rows is None or not c.operand.may_pack or c.assumed_rows < MIN_ROWS_TO_PACK:
        return None
    width = width or tile_of(c, target, None).columns
    dense = c.operand.dense_columns
    is_narrow = dense is not None and dense <= MAX_UNPACKED_COLUMNS and dense % width == 0
    return None if is_narrow else width


def tile_of(c: Contraction, target: Target, panel: int | None) -> Tile:
    lanes = target.lanes(c.dtype) if c.dot is None else c.dot.lanes
    core = target.machine.core if c.dot is None else c.dot.core(target.machine.core)
    if panel is not None and panel % lanes:
        fitting = cost.lanes_dividing(panel, lanes) if c.is_grouped else None
        lanes, panel = fitting or lanes, panel if fitting else None  # else not packed for tiles
    if panel is None and c.columns is not None and c.columns < lanes:
        lanes = max(c.columns, 1)
    no_reuse = c.window is not None
    is_plain = not no_reuse and not c.is_grouped
    if c.max_rows is not None and panel is not None and c.columns is not None and is_plain:
        return cost.short_tile(c.max_rows, c.columns, lanes, target.vector_registers, panel, core)
    return cost.register_tile(
        c.row_count, c.columns, lanes, target.vector_registers, panel, no_reuse, core
    )


def _plan(
    algorithm: str, c: Contraction, target: Target, packing: Packing | None
) -> ContractionPlan:
    tile = tile_of(c, target, packing.width if packing else None)
    blocking = _blocking(c, target, tile)
    if packing is not None:
        packing = replace(packing, per_panel=_per_panel(c, target, tile, blocking, packing))
    step = _prefetch(c, target, tile, blocking, packing)
    plan = ContractionPlan(
        algorithm, c.rows, c.lanes, c.k_order, tile, packing, blocking, prefetch=step
    )
    plan = replace(plan, dot=None if c.dot is None else c.dot.group)
    is_padded = packing is not None or c.rows is not None
    return replace(plan, partial_sums=_partial_sums(c, step), tail="pad" if is_padded else "guard")


def _unrolled(algorithm: str, c: Contraction, target: Target) -> list[ContractionPlan]:
    """Plans with k unrolled, where that saves loop overhead. Not where integer sums are added by
    an instruction of their own: LLVM would sum an iteration's terms first, and spill them."""
    if c.dot is not None and c.dot.adds_apart:
        return register_tiled(algorithm, c, target)
    return [
        replace(plan, k_unroll=k_unroll(plan.tile.rows, innermost_k(plan, c)))
        for plan in register_tiled(algorithm, c, target)
        if plan.tile is not None
    ]


def k_unroll(rows: int, depth: int | None) -> int:
    factor = options.current().k_unroll if options.current().has("k_unroll") else 1
    is_long = factor > 1 and (depth is None or depth >= 2 * factor)
    return factor if is_long and cost.may_unroll_k(rows) else 1


def innermost_k(plan: ContractionPlan, c: Contraction) -> int | None:
    """Iterations of the innermost k loop, as the plan splits it."""
    sizes = _k_loops(c, plan.prefetch)
    if plan.partial_sums is not None and plan.partial_sums[0] == len(sizes) - 1:
        return plan.partial_sums[1]
    return sizes[-1]


def _blocking(c: Contraction, target: Target, tile: Tile) -> Blocking:
    if c.rows is None or tile.rows == 1 or not options.current().has("cache_blocks"):
        return Blocking("panels")
    size, rows = c.dtype.storage_bytes, c.row_count
    depth, own_depth = product(c.k_extents), product(c.k_iterations(c.separate_k))
    count = cost.row_tiles_per_block(
        None if rows is None else -(-rows // tile.rows),
        None if own_depth is None else own_depth * tile.rows * size,
        None if depth is None or c.columns is None else depth * c.columns * size,
        target.caches,
    )
    if count is None:
        return Blocking("panels")
    return Blocking("rows") if count == 1 else Blocking("blocks", (count,))


def _per_panel(
    c: Contraction, target: Target, tile: Tile, blocking: Blocking, packing: Packing
) -> bool:
    """Pack each panel inside the loop over panels, so that it is still in cache when tiles use it?
    That loop must be the outermost, with enough panels for the threads."""
    is_copied = c.operand.source == "copy" or (packing.by, c.operand.source) == ("kernel", "param")
    if not is_copied or c.outer or c.rows is None or blocking.order != "panels":
        return False
    return c.columns is not None and -(-c.columns // tile.columns) >= 4 * target.cores


def _prefetch(
    c: Contraction, target: Target, tile: Tile, blocking: Blocking, packing: Packing | None
) -> int | None:
    """Prefetch packed weights that exceed the L2 cache and are used by few row tiles?"""
    if packing is None or packing.by != "given" or c.operand.source != "param":
        return None
    row_tiles = _row_tiles_per_panel(c, tile, blocking)
    if None in c.k_extents or not options.current().has("prefetch") or len(target.caches) < 2:
        return None
    size = (c.operand.size or 0) // (1 if c.dot is None else c.dot.group)
    exceeds_l2 = size * c.dtype.storage_bytes > target.caches[1]
    if row_tiles is None or not exceeds_l2 or not 1 < row_tiles <= MAX_ROW_TILES_TO_PREFETCH:
        return None
    *before, depth = [n for n in c.k_extents if n is not None]
    return cost.prefetch_step(row_tiles * math.prod(before), depth)


def _row_tiles_per_panel(c: Contraction, tile: Tile, blocking: Blocking) -> int | None:
    if blocking.sizes:
        return blocking.sizes[0]
    if blocking.order == "rows" or c.rows is None or tile.rows == 1:
        return 1
    rows = None if c.row_count is None else -(-c.row_count // tile.rows)
    return product([*c.outer[c.batch_loops :], rows])


def _k_loops(c: Contraction, step: int | None) -> list[int | None]:
    sizes = c.k_extents
    if step is not None and sizes[-1] is not None:
        sizes[-1:] = [sizes[-1] // step, step]
    return sizes


def _partial_sums(c: Contraction, step: int | None) -> tuple[int, int] | None:
    sizes = [n for n in _k_loops(c, step) if n is not None]
    if not options.current().has("partial_sums") or None in c.k_extents or not c.is_float_sum:
        return None
    return cost.partial_sums(sizes)

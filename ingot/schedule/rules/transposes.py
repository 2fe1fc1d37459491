"""Rule: transposes, element-wise nests whose loads and stores are contiguous along different axes.

    Y[p, c] = X[c, p]   →   tiles of 8 x 8, p unrolled, c as lanes (legalize/transpose_tiles.py)

The tiles are transposed in registers. In: a nest of one plain store. Out: loads and stores use
whole cache lines: adjacent tiles along the load axis share a line, then tiles follow along the
store axis. A last partial tile is shifted back over the one before it; where rows are parallel, or
a dimension is dynamic, the remainder is peeled into a nest of its own, which other rules schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ingot.arith import expr as arith
from ingot.arith.affine import coefficient
from ingot.loops import ir, visit
from ingot.loops.ir import Axis, Load
from ingot.schedule import tree
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.handles import LoopRef
from ingot.schedule.rules.block_info import BlockInfo, extent, index_vars, node_count, own_loops
from ingot.schedule.schedule import Schedule
from ingot.support import options
from ingot.target import Target

MIN_SIDE = 4  # rows and lanes of a tile; for less, shuffles save nothing; heuristic
MIN_LINES_TO_SHIFT = 8  # cache lines of rows, so that the shifted last tile costs little; heuristic
MAX_NODES = 40  # expression nodes of the stored value, which is unrolled per row; heuristic


@dataclass(frozen=True)
class TransposeTile:
    """The loop that loads are contiguous along, the one that stores are, and the tile's side."""

    rows: LoopRef
    lanes: LoopRef
    side: int
    bytes: int  # of a loaded element


def schedule_transpose(sch: Schedule, target: Target, info: BlockInfo, is_big: bool) -> bool:
    """Tile a transpose, and parallelise it if it is big; False, and no change, if it is none."""
    tile = _find_tile(sch, target, info) if options.current().has("transpose_tiles") else None
    done = False
    if tile is not None:
        with sch.attempt(info.ref):
            _tile_nest(sch, target, info, tile, is_big)
            done = True
    return done


def _find_tile(sch: Schedule, target: Target, info: BlockInfo) -> TransposeTile | None:
    store = info.block.body
    if not isinstance(store, ir.Store) or store.mask is not None or not info.spatial:
        return None
    if node_count(store.value) > MAX_NODES or info.block.where is not None:
        return None
    if any(isinstance(e, ir.Math) for e in visit.walk_exprs(store.value)):
        return None
    last = next((a for a in info.spatial if store.indices[-1] == arith.Var(a.var)), None)
    if last is None:
        return None
    for load in info.loads:
        along = _read_along(info, load, last)
        if along is not None:
            return _make_tile(sch, target, info, load, along, last)
    return None


def _read_along(info: BlockInfo, load: Load, last: Axis) -> Axis | None:
    """The axis along which the load is contiguous, if it is not the last one, on which the load
    depends too."""
    if load.mask is not None or load.dtype.is_bool or load.dtype.bits < 8:
        return None
    if not any(last.var in index_vars(i) for i in load.indices[:-1]):
        return None
    if last.var in index_vars(load.indices[-1]):
        return None
    for axis in info.spatial:
        stride = coefficient(load.indices[-1], axis.var)
        if stride is not None and arith.is_const(stride, 1):
            return axis
    return None


def _make_tile(
    sch: Schedule, target: Target, info: BlockInfo, load: Load, along: Axis, last: Axis
) -> TransposeTile | None:
    rows, lanes = _loop_of(sch, info, along), _loop_of(sch, info, last)
    if rows is None or lanes is None:
        return None
    side = min(target.lanes(info.dtype), target.lanes(load.dtype), target.vector_registers // 2)
    above = tree.loops_above(sch.kernel.body, info.block)
    analyzer = Analyzer(sch.kernel, above)
    for loop in (rows, lanes):
        size = sch.at_loop(loop).extent
        count = arith.as_int(size)
        while side >= MIN_SIDE and (
            analyzer.at_most(size, side - 1) if count is None else count < side
        ):
            side //= 2
    return TransposeTile(rows, lanes, side, load.dtype.storage_bytes) if side >= MIN_SIDE else None


def _loop_of(sch: Schedule, info: BlockInfo, axis: Axis) -> LoopRef | None:
    """The loop that alone feeds the axis, with stride 1. It may have an offset, in a peeled nest,
    but not if it is dynamic: that is the remainder of this rule."""
    found = [x for x in own_loops(sch, info.ref) if x.name in arith.free_vars(axis.binding)]
    strides = [coefficient(axis.binding, x.name) for x in found]
    alone = len(found) == 1 and strides[0] is not None and arith.is_const(strides[0], 1)
    if not alone or (extent(sch, found[0]) is None and axis.binding != arith.Var(found[0].name)):
        return None
    return found[0]


def _tile_nest(
    sch: Schedule, target: Target, info: BlockInfo, tile: TransposeTile, is_big: bool
) -> None:
    others = [x for x in own_loops(sch, info.ref) if x not in (tile.rows, tile.lanes)]
    if _must_peel_rows(sch, target, tile, others, is_big):
        sch.reorder(tile.rows, *others, tile.lanes)
        row_tiles, row = sch.split(tile.rows, None, tile.side, tail="peel")
        outer, strips = [row_tiles, *others], []
    else:
        sch.reorder(*others, tile.rows, tile.lanes)
        factors = _row_factors(sch, tile, target.machine.core.line_bytes)
        row_tiles, *strips, row = sch.split(tile.rows, None, *factors, tail="shift")
        outer = [*others, row_tiles]
    sch.reorder(*outer, tile.lanes, *strips, row)
    width = extent(sch, tile.lanes)
    # with too few outer iterations for the threads, the tiles along the lanes are parallel too
    too_few = is_big and _known_iterations(sch, outer) < 4 * target.cores
    must_peel_lanes = width is None or (too_few and width % tile.side != 0)
    tail = "peel" if must_peel_lanes else "shift"
    around = outer if too_few and must_peel_lanes else []
    if around:  # peel outside of them: their nest, which becomes one parallel loop, stays perfect
        sch.reorder(tile.lanes, *around, *strips, row)
    lane_tiles, lane = sch.split(tile.lanes, None, tile.side, tail=tail)[-2:]
    sch.reorder(*around, *([lane_tiles] if around else []), *strips, row, lane)
    sch.unroll(row)
    sch.vectorize(lane)
    if is_big:
        with sch.attempt(info.ref, ir.SERIAL_LOOPS):
            sch.parallel(_parallel_loop(sch, target, [*outer, lane_tiles] if too_few else outer))


def _must_peel_rows(
    sch: Schedule, target: Target, tile: TransposeTile, others: list[LoopRef], is_big: bool
) -> bool:
    """May row tiles not overlap, because they are parallel or their count is dynamic?"""
    count = extent(sch, tile.rows)
    if count is None:
        return True
    if count % tile.side == 0 or not is_big:
        return False
    return _known_iterations(sch, others) < 4 * target.cores


def _row_factors(sch: Schedule, tile: TransposeTile, line_bytes: int) -> tuple[int, ...]:
    """Split factors of the rows: tiles that share loaded cache lines, rows of a tile."""
    tiles = line_bytes // (tile.side * tile.bytes)
    count = extent(sch, tile.rows) or 0
    line = tiles * tile.side
    may_shift = count >= MIN_LINES_TO_SHIFT * line and count % tile.side
    if tiles > 1 and (count % line == 0 or may_shift):
        return tiles, tile.side
    return (tile.side,)


def _parallel_loop(sch: Schedule, target: Target, outer: list[LoopRef]) -> LoopRef:
    """As many of the outer loops, fused, as all threads need."""
    taken = 1
    while taken < len(outer) and _known_iterations(sch, outer[:taken]) < 4 * target.cores:
        taken += 1
    return sch.fuse(*outer[:taken]) if taken > 1 else outer[0]


def _known_iterations(sch: Schedule, loops: list[LoopRef]) -> int:
    """Iterations of the loops together, at least: a dynamic loop may run once."""
    return prod(extent(sch, x) or 1 for x in loops)

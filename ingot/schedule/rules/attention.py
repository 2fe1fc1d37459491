"""Rule: two products with rows between them, softmax(Q·Kᵀ·scale + mask)·V, in one nest.

    for heads, tiles of rows (parallel):
        for panels of K:  scores of the tile, in registers; scale and mask on them → scratch
        the stages of a row (softmax), one after the other, for the rows of the tile
        for panels of V:  the tile of the result, in registers, from the scratch

The scores of a few rows live in the thread's own memory; the matrix of all of them is nowhere. K
and V are copied into panels first, by nests of their own, which are left as they are. In: a kernel
with two products, not inlined yet. Out: whether it was scheduled; if not, nothing has changed.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot import tiles
from ingot.arith import expr as arith
from ingot.loops import ir
from ingot.loops.ir import Axis
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.inline import inline_maps
from ingot.schedule.rules.maps import vectorize_loop, write_out
from ingot.schedule.rules.panels import pack_operand
from ingot.schedule.rules.roles import Roles, is_product, panel_of
from ingot.schedule.rules.rows import combine, partial_results
from ingot.schedule.rules.stages import (
    Stage,
    extent,
    index_vars,
    loop_of,
    own_loops,
    stage_of,
    stages,
)
from ingot.schedule.rules.steps import write_out_steps
from ingot.schedule.schedule import Schedule
from ingot.support.errors import IngotError
from ingot.target import Target


@dataclass(frozen=True)
class Parts:
    """The stages by what they are for, in order."""

    queries: list[BlockRef]  # what makes the left operand of the first product
    first: BlockRef
    scores: BlockRef  # the last map of the first product's result before rows begin
    rows: list[BlockRef]
    second: BlockRef
    out: BlockRef

    @property
    def before_second(self) -> list[BlockRef]:
        return [*self.queries, self.first, self.scores, *self.rows]


def schedule_attention(sch: Schedule, target: Target) -> bool:
    """One nest for all but the copies of K and V; False where some step is refused."""
    with sch.attempt():
        _one_nest(sch, target)
        return True
    return False


def _one_nest(sch: Schedule, target: Target) -> None:
    first, second = _products(sch)
    scores = _scores(sch, first)
    inline_maps(sch, keep=(scores,))
    rows, widths = _tiles(sch, target, (first, second))
    for product in (first, second):
        stage = stage_of(sch, product)
        pack_operand(sch, stage, _roles(stage), widths[product])
    parts = _parts(sch, first, scores, second)
    _pad(sch, parts, rows, widths)
    partial = _partial_results(sch, target, parts)
    shared, panel = _tiles_of_result(sch, parts, rows, widths[second])
    sch.compute_at(second, panel)
    _product_tile(sch, target, second)
    write_out(sch, target, parts.out)
    inner = [x for ref in parts.before_second for x in (partial.get(ref), ref) if x is not None]
    for ref in reversed(inner):
        sch.compute_at(ref, shared)
    _scores_tile(sch, target, parts, widths[first])
    for ref in (*inner, second):
        sch.set_scope(ref, ir.THREAD)
    for ref in inner:
        if ref not in (first, scores):
            has_keys = len(stage_of(sch, ref).spatial) == len(stage_of(sch, first).spatial)
            _row_stage(sch, target, ref, ref in partial.values(), has_keys)
    sch.parallel(shared)


def _refuse(why: str) -> IngotError:
    return IngotError("bad-schedule", f"attention: {why}")


# --- what is what -------------------------------------------------------------------------------


def _products(sch: Schedule) -> tuple[BlockRef, BlockRef]:
    found = [s for s in stages(sch) if s.is_reduction and is_product(s)]
    if len(found) != 2:
        raise _refuse(f"there are {len(found)} products")
    return found[0].ref, found[1].ref


def _scores(sch: Schedule, first: BlockRef) -> BlockRef:
    """The end of the maps that the first product goes through; a copy where there is none."""
    found, readers = first, _readers(sch, first)
    while len(readers) == 1 and readers[0].is_map:
        found, readers = readers[0].ref, _readers(sch, readers[0].ref)
    return sch.cache_write(first) if found == first else found


def _readers(sch: Schedule, ref: BlockRef) -> list[Stage]:
    made = stage_of(sch, ref).outputs
    others = [s for s in stages(sch) if s.ref != ref]
    return [s for s in others if any(x.buffer.name in made for x in s.loads)]


def _parts(sch: Schedule, first: BlockRef, scores: BlockRef, second: BlockRef) -> Parts:
    """What follows the first product, and the maps that make its left operand."""
    reached: set[str] = set()
    after: list[BlockRef] = []
    for stage in stages(sch):
        if stage.ref == first or any(x.buffer.name in reached for x in stage.loads):
            reached |= stage.outputs
            after.append(stage.ref)
    if after[:2] != [first, scores] or after[-2:-1] != [second]:
        raise _refuse("the stages do not follow one another")
    product = stage_of(sch, first)
    lanes = _roles(product).lanes.var
    left = {
        x.buffer.name for x in product.loads if not any(lanes in index_vars(i) for i in x.indices)
    }
    queries = [s.ref for s in stages(sch) if s.is_map and s.outputs & left]
    return Parts(queries, first, scores, after[2:-2], second, after[-1])


def _roles(stage: Stage) -> Roles:
    if len(stage.spatial) < 2 or stage.spatial[-1].extent == 1:
        raise _refuse("a product has no rows, or a single column")
    return Roles(stage.spatial[-1], stage.spatial[-2])


# --- panels, tiles and padding ------------------------------------------------------------------


def _tiles(
    sch: Schedule, target: Target, products: tuple[BlockRef, ...]
) -> tuple[int, dict[BlockRef, int]]:
    """Rows of a tile, the same for all products, and the width of each one's panels."""
    sides = []
    for ref in products:
        stage = stage_of(sch, ref)
        roles = _roles(stage)
        columns, depth = (arith.as_int(a.extent) for a in (roles.lanes, stage.reduced[-1]))
        lanes, panel = target.lanes(stage.dtype), panel_of(stage, roles.lanes)
        lanes = lanes if columns is None or panel else min(lanes, columns)
        sides.append(tiles.Side(columns, depth, lanes, panel))
        rows = arith.as_int(stage.spatial[-2].extent)
    made = tiles.common_tiles(rows, sides, target.vector_registers)
    widths = [side.panel or tile.columns for side, tile in zip(sides, made)]
    return made[0].rows, dict(zip(products, widths))


def _pad(sch: Schedule, parts: Parts, rows: int, widths: dict[BlockRef, int]) -> None:
    """Whole tiles of rows in every stage, one after the other, so that each finds what it reads
    padded already; whole panels in the products."""
    place = len(stage_of(sch, parts.first).spatial) - 2
    for ref in (*parts.before_second, parts.second):
        stage = stage_of(sch, ref)
        if ref == parts.second:  # leading axes of one step may be gone in it
            place = len(stage.spatial) - 2
        if not 0 <= place < len(stage.spatial):
            raise _refuse("its stages have axes of one step in different places")
        wanted = {stage.spatial[place].var: rows}
        if ref in widths and panel_of(stage, stage.spatial[-1]) is not None:
            wanted[stage.spatial[-1].var] = widths[ref]
        sch.pad(ref, *(wanted.get(a.var, 1) for a in stage.block.axes))


def _partial_results(sch: Schedule, target: Target, parts: Parts) -> dict[BlockRef, BlockRef]:
    """Reductions along rows in lanes: reduction → the block of its partial results."""
    found: dict[BlockRef, BlockRef] = {}
    for ref in parts.rows:
        if stage_of(sch, ref).is_reduction:
            with sch.attempt():
                # one vector: the rows of a tile, side by side, keep the machine busy
                made = partial_results(sch, target, stage_of(sch, ref), vectors=1)
                found |= {} if made is None else {ref: made}
    return found


# --- the nest -----------------------------------------------------------------------------------


def _tiles_of_result(sch: Schedule, parts: Parts, rows: int, width: int) -> tuple[LoopRef, LoopRef]:
    """The last stage cut into tiles: the loop over tiles of rows, the loop over panels in it."""
    out, made = stage_of(sch, parts.out), stage_of(sch, parts.second).outputs
    loads = [x for x in out.loads if x.buffer.name in made]
    if not out.is_map or len(loads) != 1:
        raise _refuse("the last stage is no map of the second product")
    loops = {arith.Var(a.var): loop_of(sch, out, a) for a in out.block.axes}
    row, lane = (loops.get(i) if isinstance(i, arith.Var) else None for i in loads[0].indices[-2:])
    if row is None or lane is None:
        raise _refuse("the result is not read row by row")
    outer = [x for x in loops.values() if x is not None and x not in (row, lane)]
    row_tile, row = sch.split(row, None, rows)
    panel, lane = sch.split(lane, None, width)
    sch.reorder(*outer, row_tile, panel, row, lane)
    return (sch.fuse(*outer, row_tile) if outer else row_tile), panel


def _product_tile(sch: Schedule, target: Target, ref: BlockRef) -> None:
    """A product of one tile: the summed axis outside, the tile written out."""
    stage, own = stage_of(sch, ref), own_loops(sch, ref)
    row, lane = (_loop_for(own, a) for a in stage.spatial[-2:])
    reduced = [x for x in own if any(_feeds(x, a) for a in stage.reduced)]
    outer = [x for x in own if x not in (*reduced, row, lane)]
    lanes, width = target.lanes(stage.dtype), extent(sch, lane)
    vectors: list[LoopRef] = []
    if width is not None and width > lanes and width % lanes == 0:
        *vectors, lane = sch.split(lane, None, lanes)
    sch.reorder(*outer, *reduced, row, *vectors, lane)
    sch.vectorize(lane)
    for loop in (row, *vectors):
        sch.unroll(loop)
    if reduced:  # a sum of one term has no loop
        write_out_steps(sch, extent(sch, row), reduced[-1])


def _feeds(loop: LoopRef, axis: Axis) -> bool:
    return loop.name in arith.free_vars(axis.binding)


def _loop_for(own: list[LoopRef], axis: Axis) -> LoopRef:
    found = [x for x in own if _feeds(x, axis)]
    if len(found) != 1:
        raise _refuse(f"{len(found)} loops make the axis {axis.var}")
    return found[0]


def _scores_tile(sch: Schedule, target: Target, parts: Parts, width: int) -> None:
    """The first product, one panel at a time, and the maps of its result on the tile."""
    stage, own = stage_of(sch, parts.scores), own_loops(sch, parts.scores)
    row, lane = (_loop_for(own, a) for a in stage.spatial[-2:])
    outer = [x for x in own if x not in (row, lane)]
    panel, lane = sch.split(lane, None, width)
    sch.reorder(*outer, panel, row, lane)
    sch.compute_at(parts.first, panel)
    _product_tile(sch, target, parts.first)
    write_out(sch, target, parts.scores)


def _row_stage(
    sch: Schedule, target: Target, ref: BlockRef, is_partial: bool, has_keys: bool
) -> None:
    """Vectors along the rows; partial results of all rows of the tile side by side. What is one
    number for each row has none: there are fewer rows in a tile than lanes."""
    stage = stage_of(sch, ref)
    loops = [x for x in own_loops(sch, ref) if extent(sch, x) != 1]
    reduced = [x for x in loops if any(_feeds(x, a) for a in stage.reduced)]
    if is_partial:
        lane, *others = [x for x in loops if x not in reduced]
        sch.reorder(*reduced, *others, lane)
        sch.vectorize(lane)
        for loop in others:
            sch.unroll(loop)
    elif len(reduced) == 1:
        combine(sch, target, stage, reduced[0])
    elif loops and stage.is_map and has_keys:
        vectorize_loop(sch, target, stage, loops[-1])

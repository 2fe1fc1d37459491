"""Rule: a map that reads along another axis than it writes along, in tiles turned in registers.

    Y[p, c] = X[c, p]   →   tiles of 8 x 8, p written out, c as lanes (legalize/transpose_tiles.py)

In: a nest of one plain store. Out: both sides run along whole lines of cache: tiles side by side
along what is read share one, the next ones follow along what is written. A last tile is moved back
over the one before it; where threads share the rows, or a size is open, what is left over becomes a
nest of its own, which other rules see.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ingot.arith import expr as arith
from ingot.arith.affine import coefficient
from ingot.loops import ir, visit
from ingot.loops.ir import Axis, Load
from ingot.schedule import tree
from ingot.schedule.facts import Facts
from ingot.schedule.handles import LoopRef
from ingot.schedule.rules.stages import Stage, extent, index_vars, node_count, own_loops
from ingot.schedule.schedule import Schedule
from ingot.support import knobs
from ingot.target import Target
from ingot.tiles import LINE_BYTES

LEAST = 4  # rows and lanes of a tile, below which shuffles save nothing
WORTH_LINES = 8  # tiles as wide as a line, so that moving the last one back costs little
MOST_NODES = 40  # of the formula, which is written out for every row


@dataclass(frozen=True)
class Turn:
    """The loop that reads run along, the loop that is written along, rows and lanes of a tile."""

    rows: LoopRef
    lanes: LoopRef
    side: int
    bytes: int  # of an element that is read


def schedule_transpose(sch: Schedule, target: Target, stage: Stage, is_big: bool) -> bool:
    """The nest of a map in turned tiles, shared between threads if it is big; False if it is none,
    and left as it was."""
    turn = _turn(sch, target, stage) if knobs.current().turn_tiles else None
    done = False
    if turn is not None:
        with sch.attempt():
            _tiles(sch, target, stage, turn, is_big)
            done = True
    return done


def _turn(sch: Schedule, target: Target, stage: Stage) -> Turn | None:
    store = stage.block.body
    if not isinstance(store, ir.Store) or store.mask is not None or not stage.spatial:
        return None
    if node_count(store.value) > MOST_NODES or stage.block.where is not None:
        return None
    if any(isinstance(e, ir.Math) for e in visit.walk_exprs(store.value)):
        return None
    last = next((a for a in stage.spatial if store.indices[-1] == arith.Var(a.var)), None)
    if last is None:
        return None
    for load in stage.loads:
        along = _read_along(stage, load, last)
        if along is not None:
            return _turn_of(sch, target, stage, load, along, last)
    return None


def _read_along(stage: Stage, load: Load, last: Axis) -> Axis | None:
    """The axis along which the load runs contiguously, if that is another than the last one, which
    it depends on too."""
    if load.mask is not None or load.dtype.is_bool or load.dtype.bits < 8:
        return None
    if not any(last.var in index_vars(i) for i in load.indices[:-1]):
        return None
    if last.var in index_vars(load.indices[-1]):
        return None
    for axis in stage.spatial:
        step = coefficient(load.indices[-1], axis.var)
        if step is not None and arith.is_const(step, 1):
            return axis
    return None


def _turn_of(
    sch: Schedule, target: Target, stage: Stage, load: Load, along: Axis, last: Axis
) -> Turn | None:
    rows, lanes = _loop_of(sch, stage, along), _loop_of(sch, stage, last)
    if rows is None or lanes is None:
        return None
    side = min(target.lanes(stage.dtype), target.lanes(load.dtype), target.vector_registers // 2)
    above = tree.loops_above(sch.kernel.body, stage.block)
    facts = Facts(sch.kernel, above)
    for loop in (rows, lanes):
        size = sch.at_loop(loop).extent
        count = arith.as_int(size)
        while side >= LEAST and (facts.at_most(size, side - 1) if count is None else count < side):
            side //= 2
    return Turn(rows, lanes, side, load.dtype.storage_bytes) if side >= LEAST else None


def _loop_of(sch: Schedule, stage: Stage, axis: Axis) -> LoopRef | None:
    """The loop that the axis runs along one to one. It may begin later, in a nest that was cut off,
    but not if its size is open: that is what was left over here."""
    found = [x for x in own_loops(sch, stage.ref) if x.name in arith.free_vars(axis.binding)]
    steps = [coefficient(axis.binding, x.name) for x in found]
    alone = len(found) == 1 and steps[0] is not None and arith.is_const(steps[0], 1)
    if not alone or (extent(sch, found[0]) is None and axis.binding != arith.Var(found[0].name)):
        return None
    return found[0]


def _tiles(sch: Schedule, target: Target, stage: Stage, turn: Turn, is_big: bool) -> None:
    others = [x for x in own_loops(sch, stage.ref) if x not in (turn.rows, turn.lanes)]
    cut = _rows_are_cut(sch, target, turn, others, is_big)
    if cut:
        sch.reorder(turn.rows, *others, turn.lanes)
        row_tiles, row = sch.split(turn.rows, None, turn.side, tail="peel")
        outer, strips = [row_tiles, *others], []
    else:
        sch.reorder(*others, turn.rows, turn.lanes)
        tile = _line(sch, turn)
        row_tiles, *strips, row = sch.split(turn.rows, None, *tile, tail="shift")
        outer = [*others, row_tiles]
    sch.reorder(*outer, turn.lanes, *strips, row)
    wide = extent(sch, turn.lanes)
    few = is_big and _known(sch, outer) < 4 * target.cores  # threads share the lanes' tiles too
    is_cut = wide is None or (few and wide % turn.side != 0)
    lane_tiles, lane = sch.split(turn.lanes, None, turn.side, tail="peel" if is_cut else "shift")[
        -2:
    ]
    sch.reorder(*strips, row, lane)
    sch.unroll(row)
    sch.vectorize(lane)
    if is_big:
        with sch.attempt():
            sch.parallel(_shared(sch, target, [*outer, lane_tiles] if few else outer))


def _rows_are_cut(
    sch: Schedule, target: Target, turn: Turn, others: list[LoopRef], is_big: bool
) -> bool:
    """Must tiles of rows not overlap, since threads share them out, or nobody knows how many?"""
    count = extent(sch, turn.rows)
    if count is None:
        return True
    if count % turn.side == 0 or not is_big:
        return False
    return _known(sch, others) < 4 * target.cores


def _line(sch: Schedule, turn: Turn) -> tuple[int, ...]:
    """Tiles that share lines of what is read, one after the other, and their rows."""
    tiles = LINE_BYTES // (turn.side * turn.bytes)
    count = extent(sch, turn.rows) or 0
    wide = tiles * turn.side
    if tiles > 1 and (count % wide == 0 or (count >= WORTH_LINES * wide and count % turn.side)):
        return tiles, turn.side
    return (turn.side,)


def _shared(sch: Schedule, target: Target, outer: list[LoopRef]) -> LoopRef:
    """As many of the outer loops, fused, as it takes for all threads."""
    taken = 1
    while taken < len(outer) and _known(sch, outer[:taken]) < 4 * target.cores:
        taken += 1
    return sch.fuse(*outer[:taken]) if taken > 1 else outer[0]


def _known(sch: Schedule, loops: list[LoopRef]) -> int:
    """How often they run together at least: a loop of an open size may run once."""
    return prod(extent(sch, x) or 1 for x in loops)

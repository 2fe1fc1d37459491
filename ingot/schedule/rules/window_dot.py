"""Rule: depthwise convolutions of bytes (ops/window_dot.py) by dot products over four columns.

    for rows, vectors of channels (parallel): for tiles of columns:
        for rows and groups of the window, columns (unrolled): one instruction for the channels
        the epilogue, on the tile

Neighbouring outputs read the same four columns, which are interleaved once for both. In: a kernel
of the padded copy, the reduction and element-wise blocks. Targets without the instruction, and
other structures, get the rule of their structure.
"""

from __future__ import annotations

from math import prod

from ingot.loops import ir
from ingot.schedule.column_dots import column_dot
from ingot.schedule.handles import LoopRef
from ingot.schedule.rules.base import Rules
from ingot.schedule.rules.block_info import BlockInfo, block_infos, extent, loop_of
from ingot.schedule.rules.elementwise import vectorize_and_unroll
from ingot.schedule.rules.families import apply_contractions, reductions
from ingot.schedule.rules.generic import schedule_generic
from ingot.schedule.schedule import Schedule
from ingot.support.errors import IngotError
from ingot.target import Target

MAX_CALLS = 48  # of the instruction in a tile; for more, the rows of the window are a loop; heuristic
REGISTER_FRACTION = 0.5  # of the vector registers, for the tile's sums; heuristic


def apply_window_dot(sch: Schedule, target: Target, rules: Rules) -> None:
    found = reductions(sch)
    if column_dot(target) is None or len(found) != 1:
        apply_contractions(sch, target, rules)
        return
    info, done = found[0], False
    with sch.attempt(info.ref):
        _schedule(sch, target, info)
        done = True
    if done:
        schedule_generic(sch, target, rules, [info.ref])
    else:
        apply_contractions(sch, target, rules)


def _schedule(sch: Schedule, target: Target, info: BlockInfo) -> None:
    *outer, columns, channels = (_loop(sch, info, a) for a in info.spatial if a.extent != 1)
    *taps, term = (_loop(sch, info, a) for a in info.reduced if a.extent != 1)
    lanes, instruction = column_dot(target) or _refuse("no dot product over columns")
    block, lane = sch.split(channels, None, lanes)
    strip, column = sch.split(columns, None, _tile(target, extent(sch, columns)))
    sch.reorder(*outer, block, strip, *taps, column, lane, term)
    row = sch.fuse(*outer, block) if outer else block
    for reader in [s for s in block_infos(sch) if {x.buffer.name for x in s.loads} & info.outputs]:
        with sch.attempt(reader.ref):
            sch.reverse_compute_at(reader.ref, strip)
            vectorize_and_unroll(sch, target, reader.ref, most=target.lanes(info.dtype))
    init = sch.decompose_reduction(info.ref, taps[0] if taps else column)
    *_, init_column, init_lane = sch.loops(init)
    sch.vectorize(init_lane)
    calls = prod(extent(sch, x) or 1 for x in (*taps, column))
    for loop in (*(taps if calls <= MAX_CALLS else taps[1:]), column, init_column):
        sch.unroll(loop)
    sch.tensorize(lane, instruction)
    sch.parallel(row)


def _tile(target: Target, columns: int | None) -> int:
    """Columns of a tile: a divisor of the row, an even one unless it is all of the row, so that
    neighbours share their columns."""
    fits = int(target.vector_registers * REGISTER_FRACTION)
    if columns is None or columns <= fits:
        return columns or _refuse("a dynamic row")
    even = [n for n in range(2, fits + 1, 2) if columns % n == 0]
    return max(even) if even else max(n for n in range(1, fits + 1) if columns % n == 0)


def _refuse(why: str):
    raise IngotError("bad-schedule", "window_dot", why=why)


def _loop(sch: Schedule, info: BlockInfo, axis: ir.Axis) -> LoopRef:
    loop = loop_of(sch, info, axis)
    assert loop is not None, "each axis of the block has a loop"
    return loop

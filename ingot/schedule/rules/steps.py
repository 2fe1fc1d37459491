"""Steps of a product's sum, some at a time, without a loop's instructions between them. Used by the
rules that make register tiles: contraction.py, attention.py, winograd.py.
"""

from __future__ import annotations

from ingot import tiles
from ingot.loops import ir
from ingot.schedule.handles import LoopRef
from ingot.schedule.rules.stages import extent
from ingot.schedule.schedule import Schedule
from ingot.support import knobs


def write_out_steps(sch: Schedule, rows: int | None, loop: LoopRef) -> None:
    """`loop` is the innermost over terms of the sum, around a tile of so many rows."""
    steps, count = knobs.current().steps, extent(sch, loop)
    is_long = steps > 1 and (count is None or count >= 2 * steps)
    if is_long and rows is not None and tiles.may_write_out(rows):
        sch.annotate(loop, ir.STEPS, steps)

"""k-unroll: annotate the k loop of a register tile to be unrolled, which saves loop overhead. Used
by the rules that make register tiles: contraction.py, attention.py, winograd.py.
"""

from __future__ import annotations

from ingot.cost import contraction as cost
from ingot.loops import ir
from ingot.schedule.handles import LoopRef
from ingot.schedule.rules.block_info import extent
from ingot.schedule.schedule import Schedule
from ingot.support import knobs


def unroll_k(sch: Schedule, rows: int | None, loop: LoopRef) -> None:
    """`loop` is the innermost k loop, around a register tile of `rows` rows."""
    factor, count = knobs.current().k_unroll, extent(sch, loop)
    is_long = factor > 1 and (count is None or count >= 2 * factor)
    if is_long and rows is not None and cost.may_unroll_k(rows):
        sch.annotate(loop, ir.K_UNROLL, factor)

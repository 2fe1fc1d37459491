"""Rule: tree ensembles. Tiles of rows are parallel; what a tile does is written in its block.

The block's loops are interleaved walks through tables (ops/tree_loops.py): data decides every
address, so there is nothing to vectorise or to reorder.
"""

from __future__ import annotations

from ingot.loops.ir import SCALAR_CODE, SERIAL_LOOPS
from ingot.schedule.rules.base import Rules
from ingot.schedule.rules.block_info import own_loops, top_nests
from ingot.schedule.rules.generic import schedule_generic
from ingot.schedule.schedule import Schedule
from ingot.target import Target


def apply_trees(sch: Schedule, target: Target, rules: Rules) -> None:
    walks = [info for info in top_nests(sch) if not info.is_elementwise and info.spatial]
    for info in walks:
        for loop in own_loops(sch, info.ref)[:1]:
            with sch.attempt(info.ref, SERIAL_LOOPS):
                sch.parallel(loop)
        sch.remark(info.ref, SCALAR_CODE, "walks through trees: eight are interleaved")
    schedule_generic(sch, target, rules, done=[info.ref for info in walks])

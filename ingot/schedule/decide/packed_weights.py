"""Plan a product with packed weights: how its codes are decoded, and its register tile.

In: a kernel with the blocks of ops/matmul_packed.py. Out: the plan of its last reduction.
"""

from __future__ import annotations

from ingot.cost.packed_weights import WORD, decide_packed
from ingot.cost.shape import Given
from ingot.loops import ir
from ingot.schedule.decide.roles import likely_extent
from ingot.schedule.rules.base import Rules
from ingot.schedule.rules.block_info import block_info_of
from ingot.schedule.rules.packed_weights import digits_of, find_blocks, words_of
from ingot.schedule.schedule import Schedule
from ingot.target import Target


def plan_packed_weights(sch: Schedule, target: Target, rules: Rules, given: Given) -> None:
    blocks = find_blocks(sch)
    total: ir.Block = block_info_of(sch, blocks.total).block
    rows = likely_extent(sch, total.axes[0])
    words, digits = words_of(sch, blocks), digits_of(sch, blocks)
    unit = WORD // words.units
    sch.plans[total.name] = decide_packed(rows, words.panel, unit, digits, target)

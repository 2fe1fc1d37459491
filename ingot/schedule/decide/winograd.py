"""Plan the GEMMs of a Winograd convolution: all stages fused over blocks of tiles, or a GEMM alone.

The blocks are those that passes/use_winograd.py chose with the grid of tiles; they come as an
attribute of the operator. In: a kernel with the blocks of ops/winograd.py. Out: plans.
"""

from __future__ import annotations

from dataclasses import replace

from ingot.cost.plan import preferred
from ingot.cost.shape import Given
from ingot.cost.winograd import decide_winograd
from ingot.schedule.decide.analysis import contraction_of
from ingot.schedule.decide.families import dot_of, k_block, plan_reduction
from ingot.schedule.rules.base import Rules
from ingot.schedule.rules.block_info import block_info_of
from ingot.schedule.rules.winograd import find_blocks
from ingot.schedule.schedule import Schedule
from ingot.target import Target


def plan_winograd(sch: Schedule, target: Target, rules: Rules, given: Given) -> None:
    gemm, panels = block_info_of(sch, find_blocks(sch).gemm), dict(given.panels)
    width = next((panels[x.buffer.name] for x in gemm.loads if x.buffer.name in panels), None)
    shape, block = contraction_of(sch, gemm, True, panels), given.tile_block
    if shape is not None and (terms := k_block(gemm, given)) is not None:
        shape = replace(shape, dot=dot_of(gemm, target, terms, width))
    made = []
    if shape is not None and block is not None and width is not None:
        made = decide_winograd(shape, block, width, target)
    alone = plan_reduction(sch, target, gemm, rules, given, eager=True)
    sch.plans[gemm.block.name] = preferred([*made, *alone.choices])

"""Apply: the register tile of a GEMM by dot-product instructions.

    for k: for rows, vectors: for lanes: for terms: Y[lane] += x[term] · w[lane, term]
    →  zeros; for k: for rows, vectors: call(dot, x, w, Y)

Called by contraction.py when the tile is complete, its epilogue included: what follows a block
that is a call cannot be fused into its nest. In: the block, and a plan with `dot`. A refusal is an
error.
"""

from __future__ import annotations

from ingot.cost.plan import ContractionPlan
from ingot.loops.ir import Instruction
from ingot.schedule.handles import LoopRef
from ingot.schedule.rules.block_info import BlockInfo
from ingot.schedule.schedule import Schedule
from ingot.schedule.widening import planned_dot
from ingot.support.errors import IngotError
from ingot.target import Target

TILE = "_tile"  # what `tensorize` adds to the name of a block


def tensorize_tile(
    sch: Schedule, target: Target, info: BlockInfo, plan: ContractionPlan, k: LoopRef
) -> None:
    """Lanes and terms, the innermost loops, become an instruction; `k` is the first loop of k."""
    instruction = _instruction(target, info, plan)
    init = sch.decompose_reduction(info.ref, k)
    sch.vectorize(sch.loops(init)[-1])
    *_, lanes, _ = sch.loops(info.ref)
    sch.tensorize(lanes, instruction)


def _instruction(target: Target, info: BlockInfo, plan: ContractionPlan) -> Instruction:
    assert plan.tile is not None and plan.dot is not None
    types = [x.buffer.dtype for x in info.loads]
    found = planned_dot(target, types, plan.dot, plan.tile.lanes)
    if found is None:
        what = f"{target.name} has no dot product of {' and '.join(map(str, types))}"
        why = f"the plan has dot={plan.dot} and vectors of {plan.tile.lanes} lanes"
        raise IngotError("bad-schedule", what, why=why)
    return found

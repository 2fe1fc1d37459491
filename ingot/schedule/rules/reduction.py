"""Apply: a reduction block by the plan that the kernel carries.

In: a nest around one reduction, and the table of algorithms. A plan that is refused gives way to
its alternatives, and at last to a scalar nest; each refusal is a remark. Called by the rules of
families.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.cost.plan import PLAIN, ContractionPlan
from ingot.cost.shape import PARALLEL_WORK
from ingot.loops import ir
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.base import Rules
from ingot.schedule.rules.block_info import (
    BlockInfo,
    block_info_of,
    block_infos,
    elements,
    loop_of,
    own_loops,
)
from ingot.schedule.rules.dot_products import TILE
from ingot.schedule.rules.explain import too_small
from ingot.schedule.rules.roles import why_scalar
from ingot.schedule.schedule import Schedule
from ingot.target import Target


def schedule_reduction(
    sch: Schedule, target: Target, info: BlockInfo, rules: Rules, eager: bool
) -> None:
    """Schedule a top-level reduction nest by its plan."""
    if any(loop_of(sch, info, a) is None for a in info.block.axes if a.extent != 1):
        return  # the remainder of a nest that was scheduled before
    is_big, consumer = _has_work(sch, info), _consumer(sch, info)
    parallel_loop = None
    choices = sch.plans.get(info.block.name, PLAIN).choices
    for plan in (*choices, *(() if PLAIN in choices else (PLAIN,))):
        with sch.attempt(info.ref):
            parallel_loop = _apply(sch, target, info, rules, eager, plan, consumer)
            sch.plans.pop(info.block.name, None)
            sch.plans[_tile_name(info, plan)] = plan
            break
    if parallel_loop is not None and is_big:
        with sch.attempt(info.ref, ir.SERIAL_LOOPS):
            sch.parallel(parallel_loop)


def _tile_name(info: BlockInfo, plan: ContractionPlan) -> str:
    """The name of the block that the plan's tile has: `tensorize` makes a new one."""
    return info.block.name if plan.dot is None else info.block.name + TILE


def schedule_column_sum(sch: Schedule, target: Target, info: BlockInfo, rules: Rules) -> bool:
    """Apply the plan of a column sum; False if it has none, or it is refused."""
    plan = sch.plans.get(info.block.name)
    if plan is None or plan.algorithm != "column_sum":
        return False
    with sch.attempt(info.ref):
        rule = rules.algorithm(plan.algorithm)
        parallel_loop = rule.apply(sch, target, info, plan, _consumer(sch, info))
        with sch.attempt(info.ref, ir.SERIAL_LOOPS):
            sch.parallel(parallel_loop)
        return True
    sch.plans[info.block.name] = plan.otherwise or PLAIN
    return False


def _apply(
    sch: Schedule, target: Target, info: BlockInfo, rules: Rules, eager: bool,
    plan: ContractionPlan, consumer: BlockRef | None,
) -> LoopRef | None:  # fmt: skip
    if plan == PLAIN:
        sch.remark(info.ref, ir.SCALAR_CODE, why_scalar(info, eager))
        return _scalar_nest(sch, target, block_info_of(sch, info.ref), consumer)
    return rules.algorithm(plan.algorithm).apply(sch, target, info, plan, consumer)


def _has_work(sch: Schedule, info: BlockInfo) -> bool:
    """Is there enough work for several threads? A remark says if there is not."""
    count = elements(sch, info)
    if count is not None and not _is_big(count):
        sch.remark(info.ref, ir.SERIAL_LOOPS, too_small(count))
    return _is_big(count)


def _is_big(count: int | None) -> bool:
    return count is None or count >= 2 * PARALLEL_WORK


def _one_result(info: BlockInfo) -> str:
    return f"one result: {min(info.outputs)} is updated by every iteration"


def _consumer(sch: Schedule, info: BlockInfo) -> BlockRef | None:
    """The only reader of the result, if it is element-wise."""
    readers = [
        s for s in block_infos(sch) if s.ref != info.ref and any(_reads(s, n) for n in info.outputs)
    ]
    return readers[0].ref if len(readers) == 1 and readers[0].is_elementwise else None


def _reads(info: BlockInfo, name: str) -> bool:
    return any(x.buffer.name == name for x in info.loads)


def _scalar_nest(
    sch: Schedule, target: Target, info: BlockInfo, consumer: BlockRef | None
) -> LoopRef | None:
    """Not vectorised: one output at a time, its consumer after it. The last loop is not fused, to
    save the divisions that recover the indices, unless the others are too short for the threads."""
    outer = [x for x in (loop_of(sch, info, a) for a in info.spatial) if x is not None]
    own = own_loops(sch, info.ref)
    if not outer or own[: len(outer)] != outer:
        sch.remark(info.ref, ir.SERIAL_LOOPS, _one_result(info))
        return None
    count = arith.as_int(arith.product([sch.at_loop(x).extent for x in outer[:-1]]))
    keep_last = count is None or count >= 4 * target.cores
    first = outer[:-1] if keep_last else outer
    parallel_loop = sch.fuse(*first) if len(first) > 1 else first[0]
    if consumer is not None:
        with sch.attempt(consumer):
            sch.reverse_compute_at(consumer, outer[-1] if keep_last else parallel_loop)
    return parallel_loop

"""Family name → schedule rule. A family without a row gets one by the structure of its blocks."""

from __future__ import annotations

from collections.abc import Callable

from ingot.schedule.rules.attention import schedule_attention
from ingot.schedule.rules.block_info import block_infos, top_nests
from ingot.schedule.rules.contraction import schedule_column_reduction, schedule_reduction
from ingot.schedule.rules.generic import schedule_generic
from ingot.schedule.rules.inline import inline_elementwise
from ingot.schedule.rules.roles import is_contraction, is_dot_product
from ingot.schedule.rules.row_reduction import schedule_row_reductions
from ingot.schedule.rules.winograd import schedule_winograd
from ingot.schedule.schedule import Schedule
from ingot.target import Target

ScheduleRule = Callable[[Schedule, Target], None]


def contractions(sch: Schedule, target: Target) -> None:
    """matmul, conv: GEMM and convolution in register tiles, vectorised even with strided loads."""
    reductions = [s for s in top_nests(sch) if s.is_reduction]
    if len(reductions) == 1 and is_dot_product(reductions[0]):
        row_reductions(sch, target)  # each output is the dot product of two rows
        return
    for info in reductions:
        schedule_reduction(sch, target, info, eager=is_contraction(info))
    schedule_generic(sch, target)


def row_reductions(sch: Schedule, target: Target) -> None:
    """reduce, softmax, norm: all blocks of a row under one loop; or one reduction over columns."""
    reductions = [s for s in top_nests(sch) if s.is_reduction]
    if len(reductions) != 1 or not schedule_column_reduction(sch, target, reductions[0]):
        schedule_row_reductions(sch, target)
    schedule_generic(sch, target)


def attention(sch: Schedule, target: Target) -> None:
    """Two GEMMs and a softmax in one nest; otherwise each block by its structure."""
    if schedule_attention(sch, target):
        schedule_generic(sch, target)
    else:
        inline_elementwise(sch)
        contractions(sch, target)


def winograd(sch: Schedule, target: Target) -> None:
    """Winograd convolutions; a kernel with other blocks is scheduled by their structure."""
    if not schedule_winograd(sch, target):
        inline_elementwise(sch)
        contractions(sch, target)


def by_structure(sch: Schedule, target: Target) -> None:
    """Row reductions, or else contractions."""
    reductions = [s for s in block_infos(sch) if s.is_reduction]
    has_only_row_reductions = bool(reductions) and not any(is_contraction(s) for s in reductions)
    (row_reductions if has_only_row_reductions else contractions)(sch, target)


RULES: dict[str, ScheduleRule] = {
    "matmul": contractions,
    "conv": contractions,
    "attention": attention,
    "winograd": winograd,
    "pool": schedule_generic,
    "reduce": row_reductions,
    "softmax": row_reductions,
    "norm": row_reductions,
    "elementwise": schedule_generic,
    "activation": schedule_generic,
    "movement": schedule_generic,
}

AS_WRITTEN = ("kernel",)  # user kernels: scheduled by the user, or kept as written
OWN_INLINING = ("attention", "winograd")  # these rules keep some element-wise blocks

"""The CPU's table of schedule rules: kernel family → rule, and the algorithms of one reduction.

A row is one line. Without the row of Winograd, of attention or of small-M GEMM, and without its
files, kernels of that family or shape get the rule of their structure (docs/add-a-rule.md).
"""

from __future__ import annotations

from dataclasses import replace

from ingot.cost.depthwise import decide_depthwise
from ingot.cost.depthwise_rows import decide_depthwise_rows
from ingot.cost.gemm import decide_gemm, decide_reduction
from ingot.cost.small_m_gemm import decide_column_sum, decide_small_m_gemm, decide_split_k
from ingot.schedule.decide.attention import plan_attention
from ingot.schedule.decide.families import (
    plan_by_structure,
    plan_contractions,
    plan_generic,
    plan_row_reductions,
)
from ingot.schedule.decide.packed_weights import plan_packed_weights
from ingot.schedule.decide.winograd import plan_winograd
from ingot.schedule.rules.attention import apply_attention, prepare_attention
from ingot.schedule.rules.base import Algorithm, FamilyRule, Rules
from ingot.schedule.rules.contraction import apply_register_tile
from ingot.schedule.rules.depthwise_rows import apply_depthwise_rows
from ingot.schedule.rules.families import (
    apply_by_structure,
    apply_contractions,
    apply_row_reductions,
)
from ingot.schedule.rules.generic import schedule_generic
from ingot.schedule.rules.inline import inline_elementwise
from ingot.schedule.rules.packed_weights import apply_packed_weights, prepare_packed_weights
from ingot.schedule.rules.small_m_gemm import apply_column_blocks, apply_split_k
from ingot.schedule.rules.trees import apply_trees
from ingot.schedule.rules.window_dot import apply_window_dot
from ingot.schedule.rules.winograd import apply_winograd, prepare_winograd

_contractions = FamilyRule(inline_elementwise, plan_contractions, apply_contractions)
_row_reductions = FamilyRule(inline_elementwise, plan_row_reductions, apply_row_reductions)
_generic = FamilyRule(inline_elementwise, plan_generic, schedule_generic)

CPU_RULES = Rules(
    families={
        "matmul": replace(_contractions, has_variants=True),
        "conv": replace(_contractions, has_short_variants=True),
        "attention": FamilyRule(prepare_attention, plan_attention, apply_attention),
        "winograd": FamilyRule(prepare_winograd, plan_winograd, apply_winograd),
        "matmul_packed": FamilyRule(
            prepare_packed_weights, plan_packed_weights, apply_packed_weights, has_variants=True
        ),
        "window_dot": replace(_contractions, apply=apply_window_dot),
        "pool": _generic,
        "reduce": _row_reductions,
        "softmax": _row_reductions,
        "norm": _row_reductions,
        "elementwise": _generic,
        "activation": _generic,
        "movement": _generic,
        "trees": FamilyRule(inline_elementwise, plan_generic, apply_trees),
    },
    by_structure=FamilyRule(inline_elementwise, plan_by_structure, apply_by_structure),
    algorithms=(
        Algorithm("split_k", decide_split_k, apply_split_k),
        Algorithm("small_m_gemm", decide_small_m_gemm, apply_column_blocks),
        Algorithm("column_sum", decide_column_sum, apply_split_k),
        Algorithm("depthwise_rows", decide_depthwise_rows, apply_depthwise_rows),
        Algorithm("depthwise", decide_depthwise, apply_register_tile),
        Algorithm("gemm", decide_gemm, apply_register_tile),
        Algorithm("reduction", decide_reduction, apply_register_tile),
    ),
)

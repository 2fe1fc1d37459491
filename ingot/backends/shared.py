"""Stages that most back ends share, as rows for their tables. In: nothing. Out: `Stage`s.

A back end takes those that suit it, in their order, and puts its own before, between and after
them: `(shared.LOWER, Stage("schedule", …), shared.SPLIT_KERNELS, …)`.
"""

from __future__ import annotations

from dataclasses import replace

from ingot.backends.base import Stage
from ingot.legalize.program import dedupe_kernels, split_kernels
from ingot.lower import control as _control
from ingot.lower.long_sizes import split_long_sizes
from ingot.lower.lower import lower
from ingot.lower.merge_axes import merge_program_axes
from ingot.lower.variants import split_variants
from ingot.passes.alias_buffers import alias_buffers
from ingot.passes.fold_output_scales import fold_output_scales
from ingot.passes.fuse import DEFAULT_POLICY, FusionPolicy, fuse
from ingot.plan.barriers import insert_barriers
from ingot.plan.chunks import chunk_launches
from ingot.plan.memory import plan_memory
from ingot.support import options

_loaded = _control  # imported for its table of control-flow operators


def fuse_by(policy: FusionPolicy) -> Stage:
    """The fusion stage under a back end's own policy."""
    return Stage(
        "fuse", lambda g, s: fuse(g, _switched(policy)), "graph", "graph",
        "operator fusion: nodes that become one kernel are one `fused` node",
    )  # fmt: skip


def _switched(policy: FusionPolicy) -> FusionPolicy:
    return policy if options.current().has("attention") else replace(policy, attention=None)


FOLD_OUTPUT_SCALES = Stage(
    "fold_output_scales", lambda g, s: fold_output_scales(g, s.store), "graph", "graph",
    "fold an output's scale into that of the integer contraction before it",
)  # fmt: skip
FUSE = fuse_by(DEFAULT_POLICY)
ALIAS_BUFFERS = Stage(
    "alias_buffers", lambda g, s: alias_buffers(g) if options.current().has("alias_buffers") else g,
    "graph", "graph",
    "elide copies: concat and pad operands are written in place, slices are views",
)  # fmt: skip
LOWER = Stage(
    "lower", lambda g, s: lower(g, s.store), "graph", "program",
    "each fused node becomes one kernel and one launch, control flow becomes statements",
)  # fmt: skip
MERGE_AXES = Stage(
    "merge_axes", lambda p, s: merge_program_axes(p), "program", "program",
    "merge adjacent axes that every access indexes contiguously",
)  # fmt: skip
DEDUPE_KERNELS = Stage(
    "dedupe_kernels", lambda p, s: dedupe_kernels(p), "program", "program",
    "merge kernels that are equal up to names",
)  # fmt: skip
SPLIT_VARIANTS = Stage(
    "split_variants", lambda p, s: split_long_sizes(split_variants(p)), "program", "program",
    "a kernel for each variant of a plan over dynamic sizes; a run chooses by its sizes",
)  # fmt: skip
SPLIT_KERNELS = Stage(
    "split_kernels", lambda p, s: split_kernels(p), "program", "program",
    "one kernel per loop nest, so that each has one parallel loop",
)  # fmt: skip
DEDUPE_LEGAL_KERNELS = Stage(
    "dedupe_kernels_2", lambda p, s: dedupe_kernels(p), "program", "program",
    "merge kernels that became equal",
)  # fmt: skip
PLAN_MEMORY = Stage(
    "plan_memory", lambda p, s: plan_memory(p), "program", "program",
    "assign each buffer an offset in an arena, reusing memory by lifetime",
)  # fmt: skip
BARRIERS = Stage(
    "barriers", lambda p, s: insert_barriers(p), "program", "program",
    "insert a barrier between launches whose memory accesses conflict",
)  # fmt: skip
CHUNK_LAUNCHES = Stage(
    "chunk_launches", lambda p, s: chunk_launches(p, s.target.machine), "program", "program",
    "split each thread's range of a launch into chunks for work stealing, by its estimated time",
)  # fmt: skip

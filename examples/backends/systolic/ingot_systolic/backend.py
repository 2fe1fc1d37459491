"""The back end: its targets and its pipeline from the optimised graph to a package."""

from __future__ import annotations

import re
from dataclasses import replace

from ingot.backends import shared
from ingot.backends.base import Session, Stage
from ingot.backends.packaging import package
from ingot.legalize.lower_blocks import lower_blocks
from ingot.legalize.passes import Pass
from ingot.legalize.place_allocs import place_allocs
from ingot.legalize.program import legalize_program
from ingot.loops.ir import Kernel
from ingot.loops.script_print import show
from ingot.program import ir
from ingot.runtime.package import Package
from ingot.support.errors import IngotError
from ingot.target import MemoryScope, Target, describe
from ingot_systolic.device import module_of
from ingot_systolic.schedule import SCRATCHPAD, schedule

DEFAULT_BYTES = 64 << 10  # of scratchpad: a made-up machine
PASSES = (Pass("lower_blocks", lower_blocks), Pass("place_allocs", place_allocs))


class Systolic:
    name, device, forms = "systolic", "systolic", ("loops",)

    def target(self, text: str) -> Target:
        """ "systolic", or "systolic:4096" with the bytes of the scratchpad."""
        found = re.fullmatch(r"systolic(?::(\d+))?", text.strip())
        if found is None:
            hint = 'write "systolic" or "systolic:4096"'
            raise IngotError("bad-target", f"{text!r} is no target of this back end", hint=hint)
        memories = (
            MemoryScope("global"),
            MemoryScope("thread", is_shared=False),
            MemoryScope(SCRATCHPAD, int(found[1] or DEFAULT_BYTES), is_shared=False),
        )
        return replace(describe(text, "systolic-none-none", "", ()), memories=memories)

    def why_not_here(self, target: Target) -> str:
        return ""

    def stages(self, target: Target) -> tuple[Stage, ...]:
        return STAGES

    def source(self, kernel: Kernel, form: str, target: Target) -> str:
        return show(kernel)


def emit(program: ir.Program, session: Session) -> Package:
    return package(program, session.store, (module_of(program),), rows=())


STAGES = (
    shared.FUSE,
    shared.LOWER,
    shared.DEDUPE_KERNELS,
    Stage("schedule", lambda p, s: schedule(p), "program", "program",
          "GEMMs through the scratchpad and the matrix unit"),
    shared.SPLIT_KERNELS,
    Stage("legalize", lambda p, s: legalize_program(p, s.target, PASSES), "program", "program",
          "loops without blocks, buffers as small as their tiles, capacities checked"),
    shared.PLAN_MEMORY,
    shared.BARRIERS,
    Stage("emit", emit, "program", "package", "the program's text, for the interpreter"),
)  # fmt: skip

BACKEND = Systolic()

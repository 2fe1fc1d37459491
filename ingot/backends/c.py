"""The C back end: one C99 file a model, for any machine with a C compiler.

Kernels keep the loops that lower made: no vectors, no threads, no layouts of weights. A package has
the file in parts, so that `save` can put the weights into it. Loaded through backends/registry.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ingot.backends import shared
from ingot.backends.base import Session, Stage
from ingot.backends.packaging import package
from ingot.backends.report import report, summarize_kernels
from ingot.codegen import c_weights
from ingot.codegen.c_head import Layout
from ingot.codegen.c_helpers import Helpers
from ingot.codegen.c_kernel import print_kernel
from ingot.codegen.c_program import print_program
from ingot.legalize.program import legalize_program
from ingot.loops.ir import Kernel
from ingot.program import ir
from ingot.runtime.c import compiler, module
from ingot.runtime.c.module import CModule
from ingot.runtime.package import Package
from ingot.schedule.rules.inline import inline_elementwise
from ingot.schedule.schedule import Schedule
from ingot.schedule.table import CPU_RULES
from ingot.support import options
from ingot.support.errors import IngotError
from ingot.target import DEFAULT_CACHES, Target

SCALAR = Target(
    name="c", triple="", cpu="", features=(), vector_bits=8, vector_registers=16,
    caches=DEFAULT_CACHES, cores=1, max_alignment=8, printer="c",
)  # fmt: skip


class CBackend:
    name, device, forms = "c", module.DEVICE, ("c",)

    @property
    def exports(self) -> dict[str, Callable[[Package, Path], None]]:
        return {".c": save}

    def target(self, text: str) -> Target:
        if text.strip() != self.name:
            what = f"the target {self.name!r} has no variants: {text!r}"
            raise IngotError("bad-target", what, hint="target c: the C compiler knows the machine")
        return SCALAR

    def why_not_here(self, target: Target) -> str:
        return compiler.why_not()

    def stages(self, target: Target) -> tuple[Stage, ...]:
        return STAGES

    def source(self, kernel: Kernel, form: str, target: Target) -> str:
        helpers = Helpers()
        text = print_kernel(kernel, "kernel", helpers, options.current().stack_limit_bytes)
        return "\n".join(filter(None, [helpers.text(), text]))


def build(program: ir.Program, session: Session) -> Package:
    """A planned program → package."""
    if session.profile:
        hint = "profile the model with target cpu"
        raise IngotError("bad-option", "the back end c has no cycle counters", hint=hint)
    source = print_program(program, options.current().stack_limit_bytes)
    layout = Layout(program)
    made = CModule(
        source.head,
        c_weights.external(source.constants),
        source.body,
        c_weights.to_json(source.constants),
        tuple(layout.buffers[name] for name in program.inputs),
        tuple(layout.buffers[name] for name in program.outputs),
        len(layout.blocks),
    )
    rows = report(program, summarize_kernels(program))
    return package(program, session.store, (made.pack(),), rows, session.target.machine)


def save(made: Package, path: Path) -> None:
    """Write the package as one C file; weights beyond a limit go into a file of their own."""
    parts = module.read(made)
    constants = c_weights.from_json(parts.constant_table)
    if made.constants.nbytes <= c_weights.MAX_EMBEDDED_BYTES:
        middle = c_weights.embedded(constants, made.constants)
    else:
        middle = parts.constants
        path.with_suffix(".bin").write_bytes(made.constants.tobytes())
    path.write_text(parts.head + middle + parts.body)


def schedule_serial(program: ir.Program) -> ir.Program:
    """Inline element-wise producers; all loops stay serial."""
    return ir.replace(program, kernels=tuple((n, _inlined(k)) for n, k in program.kernels))


def _inlined(kernel: Kernel) -> Kernel:
    schedule = Schedule(kernel)
    if kernel.family not in CPU_RULES.as_written:
        inline_elementwise(schedule)
    return schedule.kernel


STAGES = (
    shared.FOLD_OUTPUT_SCALES,
    shared.FUSE,
    shared.ALIAS_BUFFERS,
    shared.LOWER,
    shared.MERGE_AXES,
    shared.DEDUPE_KERNELS,
    Stage("schedule", lambda p, s: schedule_serial(p), "program", "program",
          "inline element-wise producers; loops stay as they are"),
    shared.SPLIT_KERNELS,
    Stage("legalize", lambda p, s: legalize_program(p, s.target), "program", "program",
          "flat buffers, one lane, math functions as polynomials"),
    shared.DEDUPE_LEGAL_KERNELS,
    shared.PLAN_MEMORY,
    shared.BARRIERS,
    Stage("codegen", build, "program", "package",
          "emit one C99 file and the tables that the runtime reads"),
)  # fmt: skip

BACKEND = CBackend()

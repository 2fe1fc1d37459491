"""One kernel → one native function. In: a kernel. Out: an Executable.

The kernel becomes a program of one launch, compiled by the stages of its target after `schedule`.
The parameters that it writes are state, arrays of the caller that are updated in
place. So every parameter is an input, and its shape determines sizes.
"""

from __future__ import annotations

from typing import Any

from ingot.arith import expr as arith
from ingot.graph.types import Symbol
from ingot.loops import ir as loops
from ingot.loops.script_print import show
from ingot.loops.signature import signature
from ingot.program import ir
from ingot.runtime.executable import Executable
from ingot.support import lazy
from ingot.support.dump import Dump
from ingot.support.errors import IngotError

SCHEDULE = "schedule"  # the stage that a kernel skips: its author has scheduled it
PLAN = "plan_kernels"  # decides what that stage applies
SOURCES = ("loops", "legal", "llvm", "asm")


def program_of(kernel: loops.Kernel) -> ir.Program:
    """A program that launches the kernel once, on buffers named after its parameters."""
    written = {p.name for p in signature(kernel).outputs}
    _refuse_hidden_sizes(kernel)
    buffers = tuple(
        ir.Buffer(
            p.name,
            p.dtype,
            p.shape,
            ir.Storage.STATE if p.name in written else ir.Storage.INPUT,
        )
        for p in kernel.params
    )
    names = tuple(p.name for p in kernel.params)
    outputs = tuple(name for name in names if name in written)
    launch = ir.Launch(
        kernel.name,
        names,
        tuple(arith.Var(size.name) for size in kernel.sizes),
        origin=kernel.origin or f"kernel {kernel.name}",
    )
    return ir.Program(
        name=kernel.name,
        symbols=tuple(Symbol(s.name, s.low, s.high, s.divisor) for s in kernel.sizes),
        buffers=buffers,
        kernels=((kernel.name, kernel),),
        body=launch,
        inputs=names,
        outputs=outputs,
        output_names=outputs,
        state=tuple((name, name) for name in outputs),
    )


def _refuse_hidden_sizes(kernel: loops.Kernel) -> None:
    """The runtime takes a size from a dimension that is this size alone, not an expression."""
    bare = {d.name for p in kernel.params for d in p.shape if isinstance(d, arith.Var)}
    for size in kernel.sizes:
        if size.name not in bare:
            raise IngotError(
                "bad-input",
                f"no dimension of a parameter is the size {size.name} alone",
                where=f"kernel {kernel.name}",
                hint=f"give a parameter a dimension {size.name}",
            )


def compile_kernel(kernel: loops.Kernel, target: str, profile: bool = False) -> Executable:
    """Compile; with cycle counters if `profile`."""
    session, pipeline = _session(target, profile=profile), lazy.load("pipeline")
    obstacle = session.backend.why_not_here(session.target)
    if obstacle:
        raise IngotError("bad-target", f"target {target!r} cannot run here", why=obstacle)
    return Executable(pipeline.run_stages(program_of(kernel), session, _first_stage(session)))


def source_of(kernel: loops.Kernel, what: str, target: str) -> str:
    """The kernel's text at a stage; one text per loop nest after `split_kernels`."""
    if what not in SOURCES:
        hint = "one of " + ", ".join(SOURCES)
        raise IngotError("bad-option", f"source({what!r})", hint=hint)
    if what == "loops":
        return show(kernel)
    session, pipeline = _session(target), lazy.load("pipeline")
    last = pipeline.last_program_stage(session.stages)
    done = pipeline.run_stages(program_of(kernel), session, _first_stage(session), last)
    return "\n".join(_text(nest, what, session) for _, nest in done.kernels)


def _text(kernel: loops.Kernel, what: str, session: Any) -> str:
    if what == "legal":
        return show(kernel)
    comment = ";" if what == "llvm" else "#"
    return f"{comment} {kernel.name}\n{session.backend.source(kernel, what, session.target)}"


def default_schedule(kernel: loops.Kernel, target: str) -> loops.Kernel:
    """The kernel with the schedule that it would get in a model."""
    session, pipeline = _session(target), lazy.load("pipeline")
    names = [stage.name for stage in session.stages]
    if SCHEDULE not in names:
        return kernel
    first = PLAN if PLAN in names else SCHEDULE
    done = pipeline.run_stages(program_of(kernel), session, first, SCHEDULE)
    return done.kernel_map[kernel.name]  # of several variants, the general one


def _first_stage(session: Any) -> str:
    """The stage after the schedule; the first one of programs where nothing is scheduled."""
    programs = [stage.name for stage in session.stages if stage.takes == "program"]
    return programs[programs.index(SCHEDULE) + 1] if SCHEDULE in programs else programs[0]


def _session(target: str, **options: Any) -> Any:
    return lazy.load("pipeline").open_session(target, dump=Dump(), **options)

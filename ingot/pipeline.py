"""The map of the compiler: one table of stages from a model to a package the runtime can run.

    name, function(ir, session) → ir, IR in, IR out

No stage calls another. The table drives `ingot.compile`, `--stop-after`, `--start-from`, the dumps,
the timings and docs/tour.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ingot import ops as _ops
from ingot.graph import text as graph_text
from ingot.graph import verify as graph_verify
from ingot.graph.ir import Graph
from ingot.graph.store import ConstantStore
from ingot.legalize.program import legalize_program, separate_nests, share_kernels
from ingot.loops import verify as loops_verify
from ingot.lower import control as _control
from ingot.lower.lower import lower
from ingot.passes.attach_state import attach_state
from ingot.passes.decompose import decompose
from ingot.passes.fold_batch_norm import fold_batch_norm
from ingot.passes.fold_constants import fold_constants
from ingot.passes.inline_branches import inline_branches
from ingot.passes.merge_common import merge_common
from ingot.passes.remove_dead_code import remove_dead_code
from ingot.passes.simplify_algebra import simplify_algebra
from ingot.passes.specialize import specialize
from ingot.plan.barriers import insert_barriers
from ingot.plan.memory import place_buffers
from ingot.program import ir as program_ir
from ingot.program import text as program_text
from ingot.program import verify as program_verify
from ingot.schedule.program import schedule_program
from ingot.support import knobs, lazy
from ingot.support.dump import Dump
from ingot.support.errors import IngotError
from ingot.target import Target

_loaded = (_ops, _control)  # imported for their tables


@dataclass
class Session:
    """What stages share beside the IR: options, constants, the target and the record."""

    target: Target
    backend: Any
    shapes: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    jobs: int | None = None
    store: ConstantStore = field(default_factory=ConstantStore)
    dump: Dump = field(default_factory=Dump)


@dataclass(frozen=True)
class Stage:
    name: str
    run: Callable[[Any, Session], Any]
    takes: str
    gives: str


def _import(model: Any, s: Session) -> Graph:
    if isinstance(model, Graph):
        return model
    return lazy.load("onnx")(model, s.store)


STAGES: tuple[Stage, ...] = (
    Stage("import", _import, "model", "graph"),
    Stage("specialize", lambda g, s: specialize(g, s.shapes), "graph", "graph"),
    Stage("attach_state", lambda g, s: attach_state(g, s.state), "graph", "graph"),
    Stage("prune", lambda g, s: remove_dead_code(g, s.store), "graph", "graph"),
    Stage("fold_constants", lambda g, s: fold_constants(g, s.store), "graph", "graph"),
    Stage("inline_branches", lambda g, s: inline_branches(g, s.store), "graph", "graph"),
    Stage("fold_batch_norm", lambda g, s: fold_batch_norm(g, s.store), "graph", "graph"),
    Stage("decompose", lambda g, s: decompose(g, s.store, s.target.keeps), "graph", "graph"),
    Stage("simplify_algebra", lambda g, s: simplify_algebra(g, s.store), "graph", "graph"),
    Stage("fold_again", lambda g, s: fold_constants(g, s.store), "graph", "graph"),
    Stage("merge_common", lambda g, s: merge_common(g, s.store), "graph", "graph"),
    Stage("remove_dead_code", lambda g, s: remove_dead_code(g, s.store), "graph", "graph"),
    Stage("lower", lambda g, s: lower(g, s.store), "graph", "program"),
    Stage("share", lambda p, s: share_kernels(p), "program", "program"),
    Stage("schedule", lambda p, s: schedule_program(p, s.target), "program", "program"),
    Stage("separate", lambda p, s: separate_nests(p), "program", "program"),
    Stage("legalize", lambda p, s: legalize_program(p, s.target), "program", "program"),
    Stage("share_again", lambda p, s: share_kernels(p), "program", "program"),
    Stage("place", lambda p, s: place_buffers(p), "program", "program"),
    Stage("barriers", lambda p, s: insert_barriers(p), "program", "program"),
    Stage("codegen", lambda p, s: s.backend.build(p, s.store, s.target, s.jobs),
          "program", "package"),
)  # fmt: skip

NAMES = tuple(stage.name for stage in STAGES)


def run_stages(
    value: Any, session: Session, start_from: str = NAMES[0], stop_after: str = NAMES[-1]
) -> Any:
    """Run the table from one stage to another; verify and record after each."""
    first, last = _position(start_from), _position(stop_after)
    for stage in STAGES[first : last + 1]:
        with session.dump.stage(stage.name) as record:
            value = stage.run(value, session)
            record.show(partial(show, value))
        if knobs.current().verify:
            check(value)
    return value


def _position(name: str) -> int:
    if name not in NAMES:
        raise IngotError("bad-option", f"no stage is called {name!r}", hint="; ".join(NAMES))
    return NAMES.index(name)


def takes(name: str) -> str:
    """The IR a stage starts from: "model", "graph" or "program"."""
    return STAGES[_position(name)].takes


def show(value: Any) -> str:
    """The text form of whatever a stage gave."""
    if isinstance(value, Graph):
        return graph_text.show(value)
    if isinstance(value, program_ir.Program):
        return program_text.show(value)
    return f"package {value.name}: {len(value.kernel_objects)} kernels\n"


def parse(text: str, kind: str) -> Any:
    """The IR a stage starts from, read back from a dump."""
    return graph_text.parse(text) if kind == "graph" else program_text.parse(text)


def check(value: Any) -> None:
    """The verifier of the IR at hand, its kernels included."""
    if isinstance(value, Graph):
        graph_verify.verify(value)
    elif isinstance(value, program_ir.Program):
        program_verify.verify(value)
        for _, kernel in value.kernels:
            loops_verify.verify(kernel)

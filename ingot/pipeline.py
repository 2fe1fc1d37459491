"""The compiler pipeline: one table of stages, from a model to a package that the runtime runs.

    name, function(ir, session) → ir, IR in, IR out, what it does

No stage calls another. The table drives `ingot.compile`, `--stop-after`, `--start-from`, the dumps,
the timings, docs/pipeline.md and docs/tour.md.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ingot import ops as _ops
from ingot.graph import text as graph_text
from ingot.graph import verify as graph_verify
from ingot.graph.ir import ConstRef, Graph
from ingot.graph.store import ConstantStore
from ingot.legalize.program import dedupe_kernels, legalize_program, split_kernels
from ingot.loops import verify as loops_verify
from ingot.loops.ir import Kernel
from ingot.lower import control as _control
from ingot.lower.lower import lower
from ingot.passes.attach_state import attach_state
from ingot.passes.choose_layouts import choose_layouts
from ingot.passes.decompose import decompose
from ingot.passes.fold_batch_norm import fold_batch_norm
from ingot.passes.fold_constants import fold_constants
from ingot.passes.inline_branches import inline_branches
from ingot.passes.merge_common import merge_common
from ingot.passes.recognize import recognize
from ingot.passes.remove_dead_code import remove_dead_code
from ingot.passes.scale_weights import scale_weights
from ingot.passes.separate_pads import separate_pads
from ingot.passes.simplify_algebra import simplify_algebra
from ingot.passes.sink_reshapes import sink_reshapes
from ingot.passes.specialize import check_names, specialize, still_dynamic
from ingot.passes.use_winograd import use_winograd
from ingot.plan.barriers import insert_barriers
from ingot.plan.memory import plan_memory
from ingot.program import ir as program_ir
from ingot.program import text as program_text
from ingot.program import verify as program_verify
from ingot.schedule.program import schedule_program
from ingot.schedule.rules import CPU_RULES
from ingot.support import knobs, lazy
from ingot.support.dump import Dump
from ingot.support.errors import IngotError
from ingot.support.limits import Limits
from ingot.target import Target

_loaded = (_ops, _control)  # imported for their tables


@dataclass
class Session:
    """State that the stages share besides the IR: options, constants, target and dumps."""

    target: Target
    backend: Any
    shapes: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    kernels: Mapping[str, Any] = field(default_factory=dict)
    jobs: int | None = None
    profile: bool = False
    limits: Limits = field(default_factory=Limits)
    store: ConstantStore = field(default_factory=ConstantStore)
    dump: Dump = field(default_factory=Dump)
    verified: tuple[Kernel, ...] = ()  # the kernels of the stage before, which passed the verifier


@dataclass(frozen=True)
class Stage:
    name: str
    run: Callable[[Any, Session], Any]
    takes: str
    gives: str
    what: str


def _import(model: Any, s: Session) -> Graph:
    if isinstance(model, Graph):
        if s.kernels:
            hint = 'add them to the graph itself: g.add("kernel", [x], **kernel.attrs)'
            raise IngotError(
                "bad-option",
                "kernels= applies to the operators of a model file, not to a graph",
                hint=hint,
            )
        check_names(model, s.shapes)
        return model
    return lazy.load("onnx")(model, s.store, s.shapes, s.kernels)


def _fold(graph: Graph, s: Session) -> Graph:
    return fold_constants(graph, s.store, knobs.current().fold_limit_bytes)


def _recognize(graph: Graph, s: Session) -> Graph:
    return recognize(graph, s.store, s.target.keeps) if knobs.current().recognize else graph


STAGES: tuple[Stage, ...] = (
    Stage("import", _import, "model", "graph",
          "read the model into a typed dataflow graph; constants go into a store"),
    Stage("specialize", lambda g, s: specialize(g, still_dynamic(g, s.shapes)), "graph", "graph",
          "replace dynamic dimensions by the sizes or ranges given, where import has not"),
    Stage("attach_state", lambda g, s: attach_state(g, s.state), "graph", "graph",
          "name the inputs that a run updates in place"),
    Stage("dce", lambda g, s: remove_dead_code(g, s.store), "graph", "graph",
          "dead code elimination: remove nodes that no output depends on"),
    Stage("fold_constants", _fold, "graph", "graph",
          "evaluate nodes with constant operands, up to a size limit"),
    Stage("inline_branches", lambda g, s: inline_branches(g, s.store), "graph", "graph",
          "replace an If on a constant by the branch taken"),
    Stage("fold_batch_norm", lambda g, s: fold_batch_norm(g, s.store), "graph", "graph",
          "fold per-channel scales and shifts into constant weights"),
    Stage("decompose", lambda g, s: decompose(g, s.store, s.target.keeps), "graph", "graph",
          "expand composite operators that the target does not keep into primitive ones"),
    Stage("simplify_algebra", lambda g, s: simplify_algebra(g, s.store), "graph", "graph",
          "apply named algebraic rules, each valid for NaN and infinity too"),
    Stage("fold_constants_2", _fold, "graph", "graph",
          "fold what the rules exposed"),
    Stage("merge_common", lambda g, s: merge_common(g, s.store), "graph", "graph",
          "common subexpression elimination"),
    Stage("recognize", _recognize, "graph", "graph",
          "match subgraphs of primitive operators and replace them by composite ones"),
    Stage("dce_2", lambda g, s: remove_dead_code(g, s.store), "graph", "graph",
          "remove nodes that became unused"),
    Stage("sink_reshapes", lambda g, s: sink_reshapes(g, s.store), "graph", "graph",
          "sink reshapes below element-wise operators, which then fuse into the GEMM epilogue"),
    Stage("use_winograd", lambda g, s: use_winograd(g, s.store, s.target), "graph", "graph",
          "3 x 3 convolutions by Winograd F(2x2, 3x3), where the cost model predicts a gain"),
    Stage("choose_layouts", lambda g, s: choose_layouts(g, s.store, s.target), "graph", "graph",
          "channels-last maps around convolutions; pack constant GEMM operands into panels"),
    Stage("scale_weights", lambda g, s: scale_weights(g, s.store), "graph", "graph",
          "scale a convolution's weights per channel and not its input, where they are fewer"),
    Stage("separate_pads", lambda g, s: separate_pads(g, s.store, s.target), "graph", "graph",
          "make zero padding a node, where the producer can write into the padded buffer"),
    Stage("lower", lambda g, s: lower(g, s.store), "graph", "program",
          "fuse nodes into groups; each group becomes one kernel, launched in order"),
    Stage("dedupe_kernels", lambda p, s: dedupe_kernels(p), "program", "program",
          "merge kernels that are equal up to names"),
    Stage("schedule", lambda p, s: schedule_program(p, s.target, CPU_RULES, s.limits),
          "program", "program",
          "tile, vectorise and parallelise loops, by the rule of the kernel's family"),
    Stage("split_kernels", lambda p, s: split_kernels(p), "program", "program",
          "one kernel per loop nest, so that each has one parallel loop"),
    Stage("legalize", lambda p, s: legalize_program(p, s.target), "program", "program",
          "expand annotations: flat buffers, explicit vectors, math functions as polynomials"),
    Stage("dedupe_kernels_2", lambda p, s: dedupe_kernels(p), "program", "program",
          "merge kernels that became equal"),
    Stage("plan_memory", lambda p, s: plan_memory(p), "program", "program",
          "assign each buffer an offset in an arena, reusing memory by lifetime"),
    Stage("barriers", lambda p, s: insert_barriers(p), "program", "program",
          "insert a barrier between launches whose memory accesses conflict"),
    Stage("codegen",
          lambda p, s: s.backend.build(p, s.store, s.target, s.jobs, s.profile, s.limits),
          "program", "package",
          "emit LLVM IR, compile objects, build the tables that the runtime reads"),
)  # fmt: skip

RECURSION_LIMIT = 20_000  # Python frames: passes recurse over expression trees; heuristic
CONSTANTS_FILE = "constants.npz"  # in the dump folder, for --start-from
NAMES = tuple(stage.name for stage in STAGES)


def run_stages(
    value: Any, session: Session, start_from: str = NAMES[0], stop_after: str = NAMES[-1]
) -> Any:
    """Run the table from one stage to another; verify and record after each."""
    first, last = _position(start_from), _position(stop_after)
    if first > last:
        raise IngotError("bad-option", f"stage {start_from!r} comes after {stop_after!r}")
    try:
        with _deep_recursion():
            for stage in STAGES[first : last + 1]:
                value = _run_stage(stage, value, session)
    finally:
        if session.dump.entries and session.dump.folder is not None:
            session.store.save(session.dump.folder / CONSTANTS_FILE)
    return value


def _run_stage(stage: Stage, value: Any, session: Session) -> Any:
    with session.dump.stage(stage.name) as record:
        value = stage.run(value, session)
        record.show(partial(show, value))
    session.store.retain(_constants(value))
    if knobs.current().verify:
        check(value, session.verified)
        is_program = isinstance(value, program_ir.Program)
        session.verified = tuple(k for _, k in value.kernels) if is_program else ()
    return value


def _constants(value: Any) -> Iterator[ConstRef]:
    """The constants that an IR refers to."""
    match value:
        case program_ir.Program():
            yield from (b.constant for b in value.buffers if b.constant is not None)
        case Graph():
            yield from _constants([attr for n in value.nodes for _, attr in n.attrs])
        case list() | tuple():
            for item in value:
                yield from _constants(item)
        case ConstRef():
            yield value


@contextmanager
def _deep_recursion() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, RECURSION_LIMIT))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _position(name: str) -> int:
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        what = f"no stage is called {name!r}"
        raise IngotError("bad-option", what, hint=hint + "the stages are " + ", ".join(NAMES))
    return NAMES.index(name)


def takes(name: str) -> str:
    """The kind of IR that a stage takes: "model", "graph" or "program"."""
    return STAGES[_position(name)].takes


def show(value: Any) -> str:
    """The text form of a stage's result."""
    if isinstance(value, Graph):
        return graph_text.show(value)
    if isinstance(value, program_ir.Program):
        return program_text.show(value)
    return f"package {value.name}: {len(value.kernel_objects)} kernels\n"


def parse(text: str, kind: str) -> Any:
    """The IR of a dumped text; `kind` is "graph" or "program"."""
    return graph_text.parse(text) if kind == "graph" else program_text.parse(text)


def check(value: Any, verified: Iterable[Kernel] = ()) -> None:
    """Run the verifier of the IR, and of its kernels except those in `verified`."""
    if isinstance(value, Graph):
        graph_verify.verify(value)
    elif isinstance(value, program_ir.Program):
        program_verify.verify(value)
        known = {id(kernel) for kernel in verified}
        for _, kernel in value.kernels:
            if id(kernel) not in known:
                loops_verify.verify(kernel)

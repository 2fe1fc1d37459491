"""The map of the compiler: one table of stages from a model to a package the runtime can run.

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
from ingot.legalize.program import legalize_program, separate_nests, share_kernels
from ingot.loops import verify as loops_verify
from ingot.loops.ir import Kernel
from ingot.lower import control as _control
from ingot.lower.lower import lower
from ingot.passes.attach_state import attach_state
from ingot.passes.choose_layouts import choose_layouts
from ingot.passes.decompose import decompose
from ingot.passes.fast_convs import fast_convs
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
from ingot.passes.specialize import check_names, specialize, still_open
from ingot.plan.barriers import insert_barriers
from ingot.plan.memory import place_buffers
from ingot.program import ir as program_ir
from ingot.program import text as program_text
from ingot.program import verify as program_verify
from ingot.schedule.program import schedule_program
from ingot.support import knobs, lazy
from ingot.support.dump import Dump
from ingot.support.errors import IngotError
from ingot.support.limits import Limits
from ingot.target import Target

_loaded = (_ops, _control)  # imported for their tables


@dataclass
class Session:
    """What stages share beside the IR: options, constants, the target and the record."""

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
    verified: tuple[Kernel, ...] = ()  # the kernels of the stage before, which obey every law


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
            raise IngotError("bad-option", "kernels= spells operators of a file", hint=hint)
        check_names(model, s.shapes)
        return model
    return lazy.load("onnx")(model, s.store, s.shapes, s.kernels)


def _fold(graph: Graph, s: Session) -> Graph:
    return fold_constants(graph, s.store, knobs.current().fold_limit_bytes)


def _recognize(graph: Graph, s: Session) -> Graph:
    return recognize(graph, s.store, s.target.keeps) if knobs.current().recognize else graph


STAGES: tuple[Stage, ...] = (
    Stage("import", _import, "model", "graph",
          "read the model: typed dataflow, constants in a store beside it"),
    Stage("specialize", lambda g, s: specialize(g, still_open(g, s.shapes)), "graph", "graph",
          "sizes that were given become numbers or narrower ranges, where import has not done it"),
    Stage("attach_state", lambda g, s: attach_state(g, s.state), "graph", "graph",
          "name the inputs that a run updates in place"),
    Stage("prune", lambda g, s: remove_dead_code(g, s.store), "graph", "graph",
          "drop what no output depends on"),
    Stage("fold_constants", _fold, "graph", "graph",
          "compute what has constant operands, within a limit"),
    Stage("inline_branches", lambda g, s: inline_branches(g, s.store), "graph", "graph",
          "an If on a constant becomes the branch it takes"),
    Stage("fold_batch_norm", lambda g, s: fold_batch_norm(g, s.store), "graph", "graph",
          "scales and shifts by channel move into constant weights"),
    Stage("decompose", lambda g, s: decompose(g, s.store, s.target.keeps), "graph", "graph",
          "rich operators that the target does not keep become smaller ones"),
    Stage("simplify_algebra", lambda g, s: simplify_algebra(g, s.store), "graph", "graph",
          "named rules, each true for NaN and infinity too"),
    Stage("fold_again", _fold, "graph", "graph",
          "fold what the rules uncovered"),
    Stage("merge_common", lambda g, s: merge_common(g, s.store), "graph", "graph",
          "compute nothing twice"),
    Stage("recognize", _recognize, "graph", "graph",
          "formulas that exporters spell in small operators become the rich ones they mean"),
    Stage("remove_dead_code", lambda g, s: remove_dead_code(g, s.store), "graph", "graph",
          "drop what became unused"),
    Stage("sink_reshapes", lambda g, s: sink_reshapes(g, s.store), "graph", "graph",
          "what is done by element comes before a product's reshape, to ride on its tiles"),
    Stage("fast_convs", lambda g, s: fast_convs(g, s.store, s.target), "graph", "graph",
          "3 × 3 convolutions by fewer products, where that pays"),
    Stage("choose_layouts", lambda g, s: choose_layouts(g, s.store, s.target), "graph", "graph",
          "channels last after convolutions; constant operands in the panels that tiles read"),
    Stage("scale_weights", lambda g, s: scale_weights(g, s.store), "graph", "graph",
          "a scale by channel that comes late goes to a convolution's weights, if they are fewer"),
    Stage("separate_pads", lambda g, s: separate_pads(g, s.store, s.target), "graph", "graph",
          "zeros around a convolution's input are a pad, where the input can be made inside it"),
    Stage("lower", lambda g, s: lower(g, s.store), "graph", "program",
          "fuse nodes into groups; each group is a kernel in formulas, launched in order"),
    Stage("share", lambda p, s: share_kernels(p), "program", "program",
          "kernels that are equal but for names become one"),
    Stage("schedule", lambda p, s: schedule_program(p, s.target, s.limits), "program", "program",
          "mark loops: tiles, vectors, threads; by the rule of the kernel's family"),
    Stage("separate", lambda p, s: separate_nests(p), "program", "program",
          "one kernel for each loop nest, so that each has one parallel loop"),
    Stage("legalize", lambda p, s: legalize_program(p, s.target), "program", "program",
          "realise the marks: flat buffers, explicit vectors, math as polynomials"),
    Stage("share_again", lambda p, s: share_kernels(p), "program", "program",
          "kernels that became equal become one"),
    Stage("place", lambda p, s: place_buffers(p), "program", "program",
          "every buffer gets its place in an arena"),
    Stage("barriers", lambda p, s: insert_barriers(p), "program", "program",
          "a barrier wherever two launches' bytes conflict"),
    Stage("codegen",
          lambda p, s: s.backend.build(p, s.store, s.target, s.jobs, s.profile, s.limits),
          "program", "package",
          "LLVM text, objects, and the tables the runtime reads"),
)  # fmt: skip

RECURSION_LIMIT = 20_000  # IRs are trees and walks recurse: a long formula is a deep one
CONSTANTS_FILE = "constants.npz"  # beside the dumped texts, so that a later start finds them
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
    """The constants an IR still refers to."""
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


def check(value: Any, verified: Iterable[Kernel] = ()) -> None:
    """The verifier of the IR at hand, its kernels included but for those verified before."""
    if isinstance(value, Graph):
        graph_verify.verify(value)
    elif isinstance(value, program_ir.Program):
        program_verify.verify(value)
        known = {id(kernel) for kernel in verified}
        for _, kernel in value.kernels:
            if id(kernel) not in known:
                loops_verify.verify(kernel)

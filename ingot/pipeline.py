"""The compiler pipeline: a table of stages, from a model to a package that a device runs.

    COMMON stages (model → optimised graph)  +  backend.stages(target) (graph → package)

No stage calls another. The table drives `ingot.compile`, `--stop-after`, `--start-from`, the dumps,
the timings, docs/pipeline.md and docs/tour.md; `ingot show --stages --target T` prints that of T.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from ingot import backends, frontends
from ingot import ops as _ops
from ingot.backends.base import Session, Stage
from ingot.graph import text as graph_text
from ingot.graph import verify as graph_verify
from ingot.graph.ir import ConstRef, Graph
from ingot.loops import verify as loops_verify
from ingot.loops.ir import Kernel
from ingot.passes.attach_state import attach_state, growing_dims
from ingot.passes.capture_constants import capture_constants
from ingot.passes.choose_outputs import choose_outputs
from ingot.passes.decompose import decompose
from ingot.passes.fold_batch_norm import fold_batch_norm
from ingot.passes.fold_constants import fold_constants
from ingot.passes.hoist_invariants import hoist_invariants
from ingot.passes.hoist_quantize import hoist_quantize
from ingot.passes.infer_likely_sizes import infer_likely_sizes
from ingot.passes.inline_branches import inline_branches
from ingot.passes.integer_contractions import integer_contractions
from ingot.passes.keep_weights_packed import keep_weights_packed
from ingot.passes.merge_common import merge_common
from ingot.passes.move_zero_points import move_zero_points
from ingot.passes.recognize import recognize
from ingot.passes.remove_dead_code import remove_dead_code
from ingot.passes.simplify_algebra import simplify_algebra
from ingot.passes.sink_dequantize import sink_dequantize
from ingot.passes.sink_reshapes import sink_reshapes
from ingot.passes.specialize import check_names, specialize, still_dynamic
from ingot.passes.split_transposed import split_transposed
from ingot.program import ir as program_ir
from ingot.program import text as program_text
from ingot.program import verify as program_verify
from ingot.support import options, progress
from ingot.support.dump import check_version, with_version
from ingot.support.errors import IngotError
from ingot.support.names import did_you_mean

assert _ops.__all__  # importing them fills the operator table


def open_session(target: str, **given: Any) -> Session:
    """A session for a target by its name, with the stages of its back end."""
    backend = backends.find(target)
    described = backend.target(target)
    return Session(described, backend, (*COMMON, *backend.stages(described)), **given)


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
        return choose_outputs(model, s.outputs) if s.outputs else model
    importer = frontends.find(model)
    if s.outputs:
        model = _with_outputs(importer, model, s.outputs)
    graph = importer.import_model(model, s.store, s.shapes, s.kernels, s.example)
    if s.capacity is None:
        return graph
    # a state starts empty, and an importer assumes that no dimension is unless it is given
    grown = dict.fromkeys(growing_dims(graph, s.state), (0, None))
    shapes = {**grown, **s.shapes}
    return importer.import_model(model, s.store, shapes, s.kernels, s.example) if grown else graph


def _with_outputs(importer: Any, model: Any, names: tuple[str, ...]) -> Any:
    choose = getattr(importer, "with_outputs", None)
    if choose is None:
        what = f"outputs= cannot choose among the values of a {importer.name} model"
        hint = "return them from the module itself; outputs= is for ONNX models and graphs"
        raise IngotError("bad-option", what, hint=hint)
    return choose(model, names)


def _fold(graph: Graph, s: Session) -> Graph:
    return fold_constants(graph, s.store, s.options.fold_limit_bytes)


def _fold_first(graph: Graph, s: Session) -> Graph:
    """Dequantised constants stay, for the passes that compute with the quantised ones."""
    return fold_constants(graph, s.store, s.options.fold_limit_bytes, is_first=True)


def _recognize(graph: Graph, s: Session) -> Graph:
    return recognize(graph, s.store, s.target.keeps) if s.options.has("recognize") else graph


COMMON: tuple[Stage, ...] = (
    Stage("import", _import, "model", "graph",
          "read the model into a typed dataflow graph; constants go into a store"),
    Stage("specialize", lambda g, s: specialize(g, still_dynamic(g, s.shapes)), "graph", "graph",
          "replace dynamic dimensions by the sizes or ranges given, where import has not"),
    Stage("infer_likely_sizes", lambda g, s: infer_likely_sizes(g), "graph", "graph",
          "what a dynamic dimension is used as says which size to expect"),
    Stage("attach_state", lambda g, s: attach_state(g, s.state, s.capacity), "graph", "graph",
          "name the inputs that a run updates in place; a concat onto one becomes a write of rows"),
    Stage("dce", lambda g, s: remove_dead_code(g, s.store), "graph", "graph",
          "dead code elimination: remove nodes that no output depends on"),
    Stage("fold_constants", _fold_first, "graph", "graph",
          "evaluate nodes with constant operands, up to a size limit; not dequantisations"),
    Stage("inline_branches", lambda g, s: inline_branches(g, s.store), "graph", "graph",
          "replace an If on a constant by the branch taken"),
    Stage("hoist_invariants", lambda g, s: hoist_invariants(g, s.store), "graph", "graph",
          "loop-invariant code motion: capture carried values that no iteration changes"),
    Stage("capture_constants", lambda g, s: capture_constants(g, s.store), "graph", "graph",
          "move constants that a loop or branch captures into it"),
    Stage("split_transposed", lambda g, s: split_transposed(g, s.store), "graph", "graph",
          "transposed convolutions of quantised tensors become convolutions of their phases"),
    Stage("sink_dequantize", lambda g, s: sink_dequantize(g, s.store), "graph", "graph",
          "sink dequantisation below movement of data, which then moves 8-bit elements"),
    Stage("hoist_quantize", lambda g, s: hoist_quantize(g, s.store), "graph", "graph",
          "hoist quantisation above movement; drop it after a dequantisation of the same scale"),
    Stage("integer_contractions", lambda g, s: integer_contractions(g, s.store), "graph", "graph",
          "matmuls and convolutions of quantised tensors in integers"),
    Stage("move_zero_points", lambda g, s: move_zero_points(g, s.store), "graph", "graph",
          "contractions of 8-bit integers, corrected for zero points in their sums"),
    Stage("keep_weights_packed", lambda g, s: keep_weights_packed(g, s.store), "graph", "graph",
          "weights of a few bits that meet floats stay packed; the product decodes them"),
    Stage("fold_constants_2", _fold, "graph", "graph",
          "fold what the rules exposed, dequantised constants too"),
    Stage("fold_batch_norm", lambda g, s: fold_batch_norm(g, s.store), "graph", "graph",
          "fold per-channel scales and shifts into constant weights"),
    Stage("decompose", lambda g, s: decompose(g, s.store, s.target.keeps), "graph", "graph",
          "expand composite operators that the target does not keep into primitive ones"),
    Stage("simplify_algebra", lambda g, s: simplify_algebra(g, s.store), "graph", "graph",
          "apply named algebraic rules, each valid for NaN and infinity too"),
    Stage("fold_constants_3", _fold, "graph", "graph",
          "fold what the rules exposed"),
    Stage("capture_constants_2", lambda g, s: capture_constants(g, s.store), "graph", "graph",
          "the same for loops that operators became, where they can be packed"),
    Stage("merge_common", lambda g, s: merge_common(g, s.store), "graph", "graph",
          "common subexpression elimination"),
    Stage("recognize", _recognize, "graph", "graph",
          "match subgraphs of primitive operators and replace them by composite ones"),
    Stage("dce_2", lambda g, s: remove_dead_code(g, s.store), "graph", "graph",
          "remove nodes that became unused"),
    Stage("sink_reshapes", lambda g, s: sink_reshapes(g, s.store), "graph", "graph",
          "sink reshapes below element-wise operators, which then fuse into the GEMM epilogue"),
)  # fmt: skip

CONSTANTS_FILE = "constants.npz"  # in the dump folder, for --start-from


def run_stages(
    value: Any, session: Session, start_from: str | None = None, stop_after: str | None = None
) -> Any:
    """Run the session's stages from one to another; verify and record after each."""
    stages = session.stages
    first = 0 if start_from is None else position(stages, start_from)
    last = len(stages) - 1 if stop_after is None else position(stages, stop_after)
    if first > last:
        raise IngotError("bad-option", f"stage {start_from!r} comes after {stop_after!r}")
    try:
        with options.using(session.options):
            if last == len(stages) - 1:  # a whole compilation, not a look at a stage
                getattr(session.backend, "begin", lambda s: None)(session)
            for done, stage in enumerate(stages[first : last + 1]):
                progress.at_stage(done, last + 1 - first, stage.name)
                value = _run_stage(stage, value, session)
    finally:
        if session.dump.entries and session.dump.folder is not None:
            session.store.save(session.dump.folder / CONSTANTS_FILE)
    return value


def _run_stage(stage: Stage, value: Any, session: Session) -> Any:
    if session.fingerprint is not None and stage.takes == "graph" != stage.gives:
        session.fingerprint = fingerprint(value)
    with session.dump.stage(stage.name) as record:
        value = stage.run(value, session)
        record.show(partial(show, value))
    start = time.perf_counter()
    session.store.retain(constants_of(value))
    if session.options.verify:
        check(value, session.verified)
        is_program = isinstance(value, program_ir.Program)
        session.verified = tuple(k for _, k in value.kernels) if is_program else ()
    session.dump.add_time(time.perf_counter() - start)
    progress.LOG.debug("stage %s: %.1f ms", stage.name, session.dump.entries[-1].time_s * 1e3)
    return value


def constants_of(value: Any) -> Iterator[ConstRef]:
    """The constants that an IR refers to."""
    match value:
        case program_ir.Program():
            yield from (b.constant for b in value.buffers if b.constant is not None)
        case Graph():
            yield from constants_of([attr for n in value.nodes for _, attr in n.attrs])
        case list() | tuple():
            for item in value:
                yield from constants_of(item)
        case ConstRef():
            yield value


_CONSTANT = re.compile(r"@[0-9a-f]{24}\b")


def fingerprint(graph: Graph) -> str:
    """A digest of a graph's text, in which constants are numbers: of equal ones by one number."""
    numbers: dict[str, str] = {}
    text = _CONSTANT.sub(lambda m: numbers.setdefault(m[0], f"@{len(numbers)}"), show(graph))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def position(stages: tuple[Stage, ...], name: str) -> int:
    """The index of the stage of that name."""
    names = [stage.name for stage in stages]
    if name not in names:
        what = f"no stage is called {name!r}"
        hint = did_you_mean(name, names)
        raise IngotError("bad-option", what, hint=hint + "the stages are " + ", ".join(names))
    return names.index(name)


def last_program_stage(stages: tuple[Stage, ...]) -> str:
    """The last stage whose result is a program: what comes after has no text form."""
    return [stage.name for stage in stages if stage.gives in ("graph", "program")][-1]


def show(value: Any) -> str:
    """The text form of a stage's result, with a version line where it can be parsed back."""
    if isinstance(value, Graph):
        return with_version("graph", graph_text.show(value))
    if isinstance(value, program_ir.Program):
        return with_version("program", program_text.show(value))
    return f"package {value.name}: {len(value.kernel_names)} kernels\n"


def parse(text: str, kind: str) -> Any:
    """The IR of a dumped text; `kind` is "graph" or "program"."""
    check_version(kind, text)
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

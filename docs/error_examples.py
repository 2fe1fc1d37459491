"""A small example of every error: what docs/errors.md shows and tests/docs/ runs.

In: nothing. Out: `EXAMPLES`, a function for each code of ingot/support/errors.py that raises it.
A function's docstring is the advice on the page; its body is the example.
"""

# ruff: noqa: F821  # kernels are parsed, not run: their words need no import

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx.parser

import ingot
import ingot.ops  # the table of operators

HEAD = 'ir_version: 9, opset_import: ["": 17, "com.acme": 1]'
RELU = onnx.parser.parse_model(f"<{HEAD}> m (float[n, 4] x) => (float[n, 4] y) {{ y = Relu(x) }}")


def bad_model() -> None:
    """The file is truncated, is not ONNX, or contradicts itself. Download or export it again;
    `where` is the node or tensor that shows it."""
    ingot.compile(b"this is no model")


def unsupported_op() -> None:
    """All missing operators are listed at once, with the nodes that use them. You can write
    them as kernels: [kernels.md](kernels.md)."""
    text = f"<{HEAD}> m (float[4] x) => (float[4] y) {{ y = com.acme.Wavelet(x) }}"
    ingot.compile(onnx.parser.parse_model(text))


def bad_type() -> None:
    """The operands' shapes or element types do not fit the operator. For a model file, `where` is
    the node."""
    text = f"<{HEAD}> m (float[2, 3] a, float[4, 5] b) => (float[2, 5] y) {{ y = MatMul(a, b) }}"
    ingot.compile(onnx.parser.parse_model(text))


def bad_graph() -> None:
    """A pass, or text that you edited, made a graph that violates an invariant
    ([graph.md](graph.md)). If you changed nothing, report the bug with the dump (`--dump`)."""
    from ingot import pipeline
    from ingot.graph.text import parse

    graph = parse("graph g(%x: f32[4]) {\n  %y: f32[5] = relu(%x)\n  return %y\n}\n")
    pipeline.check(graph)


def bad_loops() -> None:
    """A kernel violates an invariant of the loop IR ([loops.md](loops.md)): here an index too
    many. The error has your line."""

    @ingot.kernel
    def doubled(X: f32[8], Y: f32[8]):
        for i in grid(8):
            with block("Y", spatial=(i,)) as (v,):
                Y[v] = X[v, v] * 2.0


def bad_program() -> None:
    """A program violates an invariant ([program.md](program.md)). As with `bad-graph`: edited text,
    or a bug of Ingot."""
    from ingot import pipeline
    from ingot.program.text import parse

    pipeline.check(parse("program('p', inputs=('x',), outputs=(), names=())\n"))


def bad_schedule() -> None:
    """The step is not legal here, or its legality cannot be proved; nothing was changed.
    [schedule.md](schedule.md) has each step with its conditions."""

    @ingot.kernel
    def doubled(X: f32[100], Y: f32[100]):
        for i in grid(100):
            with block("Y", spatial=(i,)) as (v,):
                Y[v] = X[v] * 2.0

    schedule = ingot.Schedule(doubled)
    (loop,) = schedule.loops(schedule.block("Y"))
    schedule.split(loop, 3, 8)


def bad_text() -> None:
    """A text form cannot be parsed: an edited dump, or the Python source of a kernel."""
    from ingot.graph.text import parse

    parse("graph g(%x: f32[4]) {\n  %y: f32[4] = relu(%z)\n  return %y\n}\n")


def bad_input() -> None:
    """An array does not fit the model's input. `exe.inputs` says what each must be."""
    exe = ingot.compile(RELU)
    exe(np.ones((2, 5), np.float32))


def bad_option() -> None:
    """An option has an invalid value, or an `INGOT_…` variable is unknown."""
    ingot.compile(RELU, threads=0)


def bad_target() -> None:
    """The target does not exist, or this machine cannot run it; the hint lists the names."""
    ingot.compile(RELU, target="x86-64-v9")


def codegen_failed() -> None:
    """LLVM refused a kernel, or its process died or ran out of time. Try again; if it repeats,
    report it with the dump: it is a bug of Ingot, or the machine is out of memory."""
    from ingot.codegen.llvm_object import host
    from ingot.codegen.workers import Job, MachineSpec, compile_here

    compile_here(Job("a kernel", "nonsense"), MachineSpec(host()[0], "generic", ""))


def run_failed() -> None:
    """The model failed on this input: here an index is out of range. The error names the node; the
    executable can be called again."""
    text = f"<{HEAD}> m (float[4] t, int64[1] i) => (float[1] y) {{ y = Gather(t, i) }}"
    exe = ingot.compile(onnx.parser.parse_model(text))
    exe(np.ones(4, np.float32), np.array([9]))


def limit() -> None:
    """The work would exceed a limit on time or memory; the message has the limit."""
    from ingot.arith.expr import Var
    from ingot.arith.rules import TERMS
    from ingot.support.rewrite import Rule, Variable, rewrite

    x, y = Variable("x"), Variable("y")
    swap = Rule("swap", x + y, lambda x, y: y + x)
    rewrite(Var("a") + Var("b"), [swap], TERMS)


EXAMPLES: dict[str, Callable[[], None]] = {
    "bad-model": bad_model,
    "unsupported-op": unsupported_op,
    "bad-type": bad_type,
    "bad-graph": bad_graph,
    "bad-loops": bad_loops,
    "bad-program": bad_program,
    "bad-schedule": bad_schedule,
    "bad-text": bad_text,
    "bad-input": bad_input,
    "bad-option": bad_option,
    "bad-target": bad_target,
    "codegen-failed": codegen_failed,
    "run-failed": run_failed,
    "limit": limit,
}

"""The cases of `onnx.backend.test` for the CPU, by name, and how one is run.

A case passes if the compiled model gives the expected outputs within the suite's own tolerance.
While Ingot runs it, the interpreters and the references of the operators raise an error: every
number comes from compiled code, but for host steps, which make the result "host step". A skipped
case has failed. The same cases run through ONNX Runtime's stock backend, for comparison. Called by
workers.py in its processes.
"""

from __future__ import annotations

import functools
import os
import sys
import unittest
import warnings
from collections.abc import Iterator
from typing import Any

import onnx.backend.test

import ingot
import ingot.ops
from ingot.graph import interp as graph_interp
from ingot.graph.opdef import TABLE
from ingot.loops import interp as loop_interp
from ingot.onnx_backend import CompiledModel, IngotBackend
from ingot.program import interp as program_interp
from ingot.program.ir import HostStep
from ingot.support import lazy, options

NO_FOLDING = {"fold_limit_bytes": 0, "cache_models": False}
INGOT, ONNX_RUNTIME = "ingot", "onnxruntime"
host_steps: list[str] = []  # built since the case began


class SuiteBackend(IngotBackend):
    """Constant folding is off, so that constants are computed by compiled code as well."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **given: Any) -> CompiledModel:
        with options.override(**NO_FOLDING):
            return CompiledModel(ingot.compile(model, jobs=1, threads=1))


def backend_of(runtime: str) -> Any:
    if runtime == INGOT:
        return SuiteBackend
    os.environ["ALLOW_RELEASED_ONNX_OPSET_ONLY"] = "0"  # let it try opsets that it calls unreleased
    import onnxruntime
    import onnxruntime.backend

    onnxruntime.set_default_logger_severity(4)
    return onnxruntime.backend


@functools.cache
def suite(runtime: str = INGOT) -> dict[str, unittest.TestCase]:
    """Every case for the CPU, by its name without the device."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy, in the suite's own references
        groups = onnx.backend.test.BackendTest(backend_of(runtime), __name__).test_cases
    return {
        name.removesuffix("_cpu"): group(name)
        for group in groups.values()
        for name in dir(group)
        if name.startswith("test_") and name.endswith("_cpu")
    }


def run_case(name: str, runtime: str = INGOT) -> str:
    """ "passed", "host step", or what went wrong."""
    result = unittest.TestResult()
    host_steps.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        suite(runtime)[name].run(result)
    for _, reason in result.skipped:
        return f"skipped: {reason}"
    for _, trace in (*result.errors, *result.failures):
        return summary(trace)
    return "host step" if host_steps else "passed"


def summary(trace: str) -> str:
    """What a trace says: the error's line, and the reason that an IngotError gives below it."""
    lines = [line for line in trace.splitlines() if line]
    told = [
        (index, line)
        for index, line in enumerate(lines)
        if ":" in line and not line.startswith((" ", "Traceback"))
    ]
    if not told:
        return (lines or ["failed"])[-1][:300]
    index, text = told[-1]
    why = [line.split(":", 1)[1].strip() for line in lines[index:] if line.startswith("  why:")]
    return " | ".join([text.removeprefix("ingot.support.errors."), *why[:1]])[:300]


def forbid_references() -> None:
    """Interpreters and numpy references raise an error from here on."""

    def forbidden(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a reference was reached: its result would not be Ingot's")

    for module in (graph_interp, loop_interp, program_interp):
        module.run = forbidden  # type: ignore[attr-defined]
    for op in TABLE.values():
        op.reference = op.evaluate = forbidden  # type: ignore[method-assign]


def count_host_steps() -> None:
    """A program contains a host step if one was built while the case ran: the cache is off."""
    built = HostStep.__init__

    def count(self: HostStep, *args: Any, **kwargs: Any) -> None:
        built(self, *args, **kwargs)
        host_steps.append(self.name)

    HostStep.__init__ = count  # type: ignore[method-assign]


def prepare(runtime: str) -> None:
    """What a worker does before its first case."""
    suite(runtime)
    if runtime == INGOT:
        lazy.load("pipeline")  # fills the tables whose references are forbidden
        forbid_references()
        count_host_steps()


def names() -> Iterator[str]:
    yield from sorted(suite())


# --- operators ----------------------------------------------------------------------------------

WHOLE_MODELS = "(whole models)"
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")


def operators() -> dict[str, str]:
    """Case → the operator that it is a test of, as `domain.Op` or, of the default domain, `Op`."""
    from onnx.backend.test.loader import load_model_tests

    found: dict[str, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in KINDS:
            for case in load_model_tests(kind=kind):
                found[case.name] = WHOLE_MODELS if kind == "real" else _operator(case)
    for name in found:  # a case with the operator's function body in its place
        plain, expanded, _ = name.partition("_expanded")
        if expanded and plain in found:
            found[name] = found[plain]
    return dict(sorted(found.items()))


def _operator(case: Any) -> str:
    """The one whose name is in the case's; else that of the last node."""
    model = case.model or onnx.load(f"{case.model_dir}/model.onnx")
    ops = [f"{n.domain}.{n.op_type}".removeprefix(".") for n in model.graph.node]
    if not ops:
        return WHOLE_MODELS
    text = case.name.lower().replace("_", "")
    named = [op for op in ops if op.rpartition(".")[2].lower() in text]
    return max(named, key=len) if named else ops[-1]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(name, run_case(name))

"""The cases of `onnx.backend.test` for the CPU, by name, and how one is run.

A case passes if the compiled model gives the expected outputs within the suite's own tolerance.
While it runs, the interpreters and the references of the operators raise an error: every number
comes from compiled code. Called by run.py in its worker processes.
"""

from __future__ import annotations

import functools
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
from ingot.support import options

NO_FOLDING = {"fold_limit_bytes": 0, "cache_models": False}


class SuiteBackend(IngotBackend):
    """Constant folding is off, so that constants are computed by compiled code as well."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **given: Any) -> CompiledModel:
        with options.override(**NO_FOLDING):
            return CompiledModel(ingot.compile(model, jobs=1, threads=1))


@functools.cache
def suite() -> dict[str, unittest.TestCase]:
    """Every case for the CPU, by its name without the device."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy, in the suite's own references
        groups = onnx.backend.test.BackendTest(SuiteBackend, __name__).test_cases
    return {
        name.removesuffix("_cpu"): group(name)
        for group in groups.values()
        for name in dir(group)
        if name.startswith("test_") and name.endswith("_cpu")
    }


def run_case(name: str) -> str:
    """ "passed", or what went wrong."""
    result = unittest.TestResult()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        suite()[name].run(result)
    for _, reason in result.skipped:
        return f"skipped: {reason}"
    for _, trace in (*result.errors, *result.failures):
        return summary(trace)
    return "passed"


def summary(trace: str) -> str:
    """The last line of a trace that says what happened."""
    lines = [line for line in trace.splitlines() if line and not line.startswith(" ")]
    told = [line for line in lines if ":" in line and not line.startswith("Traceback")]
    return (told or lines or ["failed"])[-1][:300]


def forbid_references() -> None:
    """Interpreters and numpy references raise an error from here on."""

    def forbidden(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a reference was reached: its result would not be Ingot's")

    for module in (graph_interp, loop_interp, program_interp):
        module.run = forbidden  # type: ignore[attr-defined]
    for op in TABLE.values():
        op.reference = op.evaluate = forbidden  # type: ignore[method-assign]


def names() -> Iterator[str]:
    yield from sorted(suite())

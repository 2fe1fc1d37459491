"""A graph with inputs: compiled, run and compared with its exact outputs.

In: a `Case` and a `Setting`. Out: an `Outcome`: the difference of each output, or the stage that
raised an error. Called by verify.py, and by shrink.py for each smaller case that it tries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from ingot import pipeline
from ingot.backends.base import Session
from ingot.graph import interp
from ingot.graph.ir import Graph
from ingot.graph.store import ConstantStore
from ingot.inspect.difference import Difference, Expected, is_float
from ingot.inspect.exact import run_widened, widened
from ingot.program import interp as program_interp
from ingot.program import ir as program_ir
from ingot.runtime.executable import Executable
from ingot.runtime.package import Package
from ingot.support.errors import IngotError
from ingot.support.options import Options

_RUNS = 3  # with all threads: a race does not show each time


@dataclass(frozen=True)
class Setting:
    """How cases are compiled and run."""

    options: Options
    target: str = "cpu"
    threads: int | None = None
    jobs: int | None = None

    def session(self, store: ConstantStore) -> Session:
        return pipeline.open_session(
            self.target, options=self.options, jobs=self.jobs, store=store.copy()
        )


@dataclass(frozen=True)
class Failure:
    """A stage, or the verifier after it, raised an error."""

    stage: str
    error: Exception

    def __str__(self) -> str:
        is_ours = isinstance(self.error, IngotError)
        return str(self.error) if is_ours else f"{type(self.error).__name__}: {self.error}"


@dataclass(frozen=True)
class Outcome:
    differences: tuple[Difference, ...] = ()
    failure: Failure | None = None
    is_unstable: bool = False  # runs on the same inputs differ

    @property
    def is_wrong(self) -> bool:
        is_other = self.failure is not None or self.is_unstable
        return is_other or any(d.is_wrong for d in self.differences)

    @property
    def first(self) -> Difference | None:
        """The first output that is wrong."""
        return next((d for d in self.differences if d.is_wrong), None)


@dataclass(frozen=True)
class Case:
    graph: Graph
    store: ConstantStore
    feeds: Mapping[str, np.ndarray]

    @property
    def arrays(self) -> list[np.ndarray]:
        return [self.feeds[v.name] for v in self.graph.inputs]

    @cached_property
    def values(self) -> dict[str, np.ndarray]:
        """Every value of the graph, in its declared types."""
        return interp.run_all(self.graph, self.store, self.arrays)

    @property
    def own(self) -> list[np.ndarray]:
        return [self.values[v.name] for v in self.graph.outputs]

    @cached_property
    def exact(self) -> list[np.ndarray]:
        return self._exact(self.arrays)

    @cached_property
    def moved(self) -> list[np.ndarray]:
        """The exact outputs of inputs that each have another rounding error."""
        return self._exact([*map(_nudged, self.arrays)])

    def _exact(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        try:
            return run_widened(self._wide, self.store, arrays)
        except IngotError:  # an operator that is defined on its own types only
            given = zip(self.graph.inputs, arrays)
            typed = [a.astype(v.dtype.numpy, copy=False) for v, a in given]
            return interp.run(self.graph, self.store, typed)

    @cached_property
    def _wide(self) -> Graph:
        return widened(self.graph, self.store)

    @cached_property
    def reads_floats(self) -> bool:
        values = (v for n in self.graph.nodes for v in (*n.inputs, *n.outputs) if v is not None)
        return any(v.dtype.is_float for v in (*self.graph.inputs, *values))

    @cached_property
    def expected(self) -> Expected:
        names = tuple(v.name for v in self.graph.outputs)
        return Expected(
            self.feeds, names, self.exact, self.own, lambda: self.moved, self.reads_floats
        )


def _nudged(array: np.ndarray) -> np.ndarray:
    if not is_float(array.dtype):
        return array
    signs = np.random.default_rng(0).choice([-1.0, 1.0], array.shape)
    half = float(ml_dtypes.finfo(array.dtype).eps) / 2
    return np.asarray(array.astype(np.float64) * (1 + signs * half))


def examine(case: Case, setting: Setting) -> Outcome:
    """Compile and run a case."""
    *_, (stage, value, error) = stages(case.graph, setting.session(case.store))
    if error is not None:
        return Outcome(failure=Failure(stage, error))
    return run_package(case.expected, value, setting.threads)


def stages(
    value: Any, session: Session, start_from: str | None = None
) -> Iterator[tuple[str, Any, Exception | None]]:
    """Each stage after import with its result, or its error, after which nothing comes."""
    names = [stage.name for stage in session.stages]
    first = 1 if start_from is None else pipeline.position(session.stages, start_from)
    for name in names[first:]:
        try:
            value = pipeline.run_stages(value, session, name, name)
        except Exception as error:  # whatever it is: verify is here to report it
            yield name, value, error
            return
        yield name, value, None


def run_package(expected: Expected, package: Package, threads: int | None) -> Outcome:
    """Run compiled code, and again on other numbers of threads: all give the same bits."""
    exe = Executable(package, threads)
    try:
        counts = [1] if exe.threads == 1 else [*[exe.threads] * _RUNS, 1]
        runs = [_call(exe, expected, count) for count in counts]
    except IngotError as error:
        return Outcome(failure=Failure("run", error))
    finally:
        exe.close()
    unstable = any(not _same_bits(a, b) for run in runs[1:] for a, b in zip(runs[0], run))
    found = [expected.differences(run) for run in (runs if unstable else runs[:1])]
    worst = next((d for d in found if any(x.is_wrong for x in d)), found[0])
    return Outcome(worst, is_unstable=unstable)


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a, b) if a.dtype == object else a.tobytes() == b.tobytes()


def _call(exe: Executable, expected: Expected, threads: int) -> list[np.ndarray]:
    exe.threads = threads
    copies = {name: np.array(array, order="C") for name, array in expected.feeds.items()}
    return [np.asarray(array) for array in exe.run(None, copies)]


def interpret(
    expected: Expected, value: Graph | program_ir.Program, store: ConstantStore
) -> Outcome:
    """The outcome of an IR between two stages, by its interpreter."""
    try:
        if isinstance(value, Graph):
            outputs = interp.run(value, store, [expected.feeds[v.name] for v in value.inputs])
        else:
            outputs = program_interp.run(value, store, expected.feeds)
    except IngotError as error:
        return Outcome(failure=Failure("", error))
    return Outcome(expected.differences(outputs))


def plain(graph: Graph) -> Graph:
    """The graph as plain inputs and outputs: the runtime neither keeps its state nor bundles
    its sequences, and a caller gives the key of random numbers."""
    return replace(graph, state=(), growth=None, bundles=())

"""An executable that specialises while it runs: frequent sizes get a build of their own.

    exe = ingot.compile("model.onnx", specialise=True)
    exe = ingot.compile("model.onnx", specialise={"calls": 20, "max_builds": 8})

In: the general executable and the model's `Builds` (builds.py), which makes builds in the
background. Out: calls dispatched by the shapes of their inputs, with one dictionary look-up, to the
build for these shapes or to the general code. Made by `ingot.compile`; an executable without the
option is a plain `Executable` and has none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ingot.runtime.builds import Builds, Shapes
from ingot.runtime.device import Array
from ingot.runtime.executable import Executable
from ingot.runtime.profile import Profile
from ingot.runtime.state import State
from ingot.runtime.trace import Trace
from ingot.support.errors import IngotError


@dataclass(frozen=True)
class Settings:
    """When a tuple of sizes gets a build, and how much is kept."""

    calls: int = 100  # of a tuple of sizes before it is built: a build takes seconds; heuristic
    max_builds: int = 4  # kept at once; heuristic
    max_bytes: int = 1 << 30  # code and weights of all builds together; heuristic

    @staticmethod
    def of(given: Any) -> Settings | None:
        """What a caller gave: True, some values by name, or False for no builds."""
        if isinstance(given, bool):
            return Settings() if given else None
        names = [field.name for field in fields(Settings)]
        hint = f"specialise=True, or a mapping of {', '.join(names)}"
        if not isinstance(given, Mapping):
            what = f"specialise is a bool or a mapping, not a {type(given).__name__}"
            raise IngotError("bad-option", what, hint=hint)
        for name, value in given.items():
            if name not in names:
                raise IngotError("bad-option", f"specialise has no setting {name!r}", hint=hint)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                what = f"specialise: {name} is {value!r}"
                raise IngotError("bad-option", what, hint="give a number, 1 or more")
        return Settings(**given)


class _Build:
    """A build as one view calls it; `repeat` is its native fast path."""

    __slots__ = ("exe", "repeat", "run", "used_at")

    def __init__(self, exe: Executable, used_at: int):
        self.exe, self.used_at = exe, used_at
        self.run, self.repeat = exe._run, exe._loaded.repeat


class SpecialisingExecutable(Executable):
    """A view of the builds: each context of an executable has memory of its own for every build.
    Calls read `_builds` without a lock, so it is replaced and never changed."""

    _builds: dict[Shapes | None, _Build]
    _shared: Builds
    _clock: Callable[[], int]

    def __init__(self, general: Executable, builds: Builds):
        self.__dict__.update(general.__dict__, _builds={}, _shared=builds, _clock=builds.clock)
        builds.attach(self)

    @property
    def threads(self) -> int:
        return self._loaded.threads

    @threads.setter
    def threads(self, count: int | None) -> None:
        self._general().threads = count  # type: ignore[assignment]
        self._shared.set_threads(self)

    @property
    def specialised(self) -> dict[str, str]:
        return self._shared.states()

    def wait_for_builds(self, timeout_s: float | None = None) -> bool:
        return self._shared.wait(timeout_s)

    def report(self, **sizes: int) -> str:
        builds = [f"specialised for {key}: {state}" for key, state in self.specialised.items()]
        return "\n".join([*builds, super().report(**sizes)])

    def profile(
        self, feeds: Mapping[str, Any], runs: int = 20, state: State | None = None
    ) -> Profile:
        """Of the code that these inputs run now: one build or the general code for all runs."""
        return self._code_for(feeds).profile(feeds, runs)

    def trace(self, feeds: Mapping[str, Any], calls: int = 3, state: State | None = None) -> Trace:
        return self._code_for(feeds).trace(feeds, calls)

    def _code_for(self, feeds: Mapping[str, Any]) -> Executable:
        is_named = isinstance(feeds, Mapping) and feeds.keys() >= set(self._in_names)
        given = [feeds[name] for name in self._in_names] if is_named else []
        build = self._builds.get(_shapes(self._with_key(given)))
        return self._general() if build is None else build.exe

    def context(self) -> SpecialisingExecutable:
        own = object.__new__(SpecialisingExecutable)
        own.__dict__.update(self.__dict__, _builds={}, **self._own())
        self._shared.attach(own)
        return own

    def close(self) -> None:
        self._submissions.wait()
        builds = self._builds
        self._shared.detach(self)
        super().close()
        for build in builds.values():
            build.exe.close()

    def trim(self) -> int:
        return super().trim() + sum(build.exe.trim() for build in self._builds.values())

    def _general(self) -> Executable:
        """This object without the dispatch."""
        plain = object.__new__(Executable)
        plain.__dict__ = self.__dict__
        return plain

    # --- calling ------------------------------------------------------------------------------

    def _run(
        self,
        given: Sequence[Any],
        out: Any,
        threads: int | None = None,
        state: State | None = None,
    ) -> list[Array]:
        assert state is None, "states that grow are not specialised"
        shapes: Shapes | None
        try:
            shapes = tuple([a.shape for a in given])
            build = self._builds.get(shapes)
        except (AttributeError, TypeError):  # numbers or lists
            shapes = _shapes(given)
            build = self._builds.get(shapes)
        if build is None:
            return self._run_general(given, out, threads, shapes)
        build.used_at = self._clock()
        if out is None and threads is None:
            try:
                outputs = build.repeat(given)
            except MemoryError:  # `run` reports it, or succeeds
                outputs = None
            if outputs is not None:
                return outputs
        return build.run(given, out, threads)

    def _run_general(
        self, given: Sequence[Any], out: Any, threads: int | None, shapes: Shapes | None
    ) -> list[Array]:
        outputs = super()._run(given, out, threads)
        if shapes is not None:
            self._shared.count(shapes)
        return outputs

    # --- called by Builds, which holds its lock -----------------------------------------------

    def add_build(self, shapes: Shapes, exe: Executable) -> None:
        own = exe.context()
        own.threads = self.threads
        self._builds = {**self._builds, shapes: _Build(own, self._clock())}

    def drop_builds(self, dropped: Iterable[Shapes]) -> None:
        gone = set(dropped)
        self._builds = {k: build for k, build in self._builds.items() if k not in gone}

    def clear_builds(self) -> None:
        self._builds = {}

    def update_threads(self) -> None:
        for build in self._builds.values():
            build.exe.threads = self.threads

    def used_at(self, shapes: Shapes) -> int:
        build = self._builds.get(shapes)
        return 0 if build is None else build.used_at


def _shapes(given: Sequence[Any]) -> Shapes | None:
    """Shapes of anything that can become an array; None if something cannot."""
    if any(isinstance(value, Mapping) for value in given):  # maps are not specialised
        return None
    try:
        return tuple([tuple(np.shape(value)) for value in given])
    except (TypeError, ValueError):
        return None

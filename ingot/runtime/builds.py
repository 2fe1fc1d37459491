"""Builds of one model for the sizes that its calls have often, made in the background.

In: shapes of calls, counted. Out: executables for single tuples of shapes, put into the views that
dispatch to them (specialise.py). A daemon thread makes one build at a time: from the model cache,
or by a child process that compiles into the cache (child_build.py). `ingot.compile` gives the two
functions that do this: nothing of the compiler is imported here.

A build is kept while it fits: at most `max_builds` of at most `max_bytes` together. One that was
not called since the counting of another size began gives way to it, the least recently used first;
a size in use never does, so that many frequent sizes do not replace each other all the time.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING
from weakref import WeakSet, finalize

from ingot.runtime import plan_file
from ingot.runtime.child_build import ChildBuild
from ingot.runtime.package import Package
from ingot.runtime.sizes import Shape, solve
from ingot.support.errors import IngotError

if TYPE_CHECKING:
    from ingot.runtime.executable import Executable
    from ingot.runtime.specialise import Settings, SpecialisingExecutable

Shapes = tuple[Shape, ...]  # of all inputs
Values = Mapping[str, int]  # dynamic dimension → size

MAX_COUNTED_SHAPES = 4096  # tuples of shapes whose calls are counted; heuristic
MAX_FAILURES = 4  # of one model, then it is not tried again: the cause is mostly the model's
EXIT_WAIT_S = 5.0  # at exit, for a thread that is loading a build; heuristic
WAITING, BUILDING, READY = "waiting", "building", "ready"
NO_ROOM = "no room: builds that were used more recently take it"

_all: WeakSet[Builds] = WeakSet()  # those that a fork or the exit concerns


class Builds:
    """`find` loads the build for sizes from the cache; None: it is not there. `start` starts a
    process that compiles it."""

    def __init__(
        self,
        settings: Settings,
        package: Package,
        find: Callable[[Values], Executable | None],
        start: Callable[[Values], ChildBuild],
    ):
        self.settings, self.clock = settings, count(1).__next__  # orders the calls
        self._package, self._find, self._start = package, find, start
        self._views: WeakSet[SpecialisingExecutable] = WeakSet()
        self._counts: dict[Shapes, tuple[float, int]] = {}  # calls, and the clock at the first
        self._kept: dict[Shapes, Executable] = {}
        self._states: dict[Shapes, str] = {}
        self._bytes: dict[Shapes, int] = {}  # of builds that were loaded once
        self._is_stopped = False
        self._renew()
        _all.add(self)

    def _renew(self) -> None:
        """No build under way: at first, and in a forked process, which has no such thread."""
        self._lock, self._is_idle = threading.Lock(), threading.Event()
        self._is_idle.set()
        self._queue: list[Shapes] = []
        self._child: ChildBuild | None = None
        under_way = (WAITING, BUILDING)
        self._states = {k: state for k, state in self._states.items() if state not in under_way}

    # --- views --------------------------------------------------------------------------------

    def attach(self, view: SpecialisingExecutable) -> None:
        """Give a view the builds that are kept, and those to come while it lives."""
        with self._lock:
            for shapes, exe in self._kept.items():
                view.add_build(shapes, exe)
            self._views.add(view)
        finalize(view, self._stop_if_unused).atexit = False

    def detach(self, view: SpecialisingExecutable) -> None:
        with self._lock:
            self._views.discard(view)
            view.clear_builds()
        self._stop_if_unused()

    def set_threads(self, view: SpecialisingExecutable) -> None:
        with self._lock:  # a build that is being added gets them too
            view.update_threads()

    def _stop_if_unused(self) -> None:
        """Takes no lock: the garbage collector may call it anywhere."""
        if not any(True for _ in self._views):
            self.stop()

    def stop(self) -> None:
        """Drop all builds and begin none; one that is under way ends soon."""
        self._is_stopped, self._queue, self._kept = True, [], {}
        child = self._child
        if child is not None:
            child.kill()

    # --- state --------------------------------------------------------------------------------

    def states(self) -> dict[str, str]:
        with self._lock:
            rows = list(self._states.items())
        return {_text(self._values(shapes)): state for shapes, state in rows}

    def wait(self, timeout_s: float | None) -> bool:
        return self._is_idle.wait(timeout_s)

    def _values(self, shapes: Shapes) -> dict[str, int]:
        """The dynamic dimensions that are solved from the inputs' shapes."""
        rows = zip(self._package.symbols, solve(self._package, shapes).symbols)
        return {symbol.name: size for symbol, size in rows if symbol.source == "input"}

    # --- requests -----------------------------------------------------------------------------

    def count(self, shapes: Shapes) -> None:
        """A call with these shapes, which have no build, has ended well."""
        calls, first = self._counts.get(shapes) or (0, self.clock())
        if not calls and len(self._counts) >= MAX_COUNTED_SHAPES:
            self._counts.clear()
        self._counts[shapes] = calls + 1, first
        if calls + 1 >= self.settings.calls and self._states.get(shapes, NO_ROOM) == NO_ROOM:
            self._request(shapes, first)

    def _request(self, shapes: Shapes, first: int) -> None:
        with self._lock:
            failures = sum(state.startswith("failed") for state in self._states.values())
            if self._is_stopped or failures >= MAX_FAILURES or not self._is_buildable(shapes):
                self._counts[shapes] = float("-inf"), first
            elif self._states.get(shapes, NO_ROOM) != NO_ROOM:
                pass  # another thread was faster
            elif self._room(shapes, first) is None:
                self._counts.pop(shapes, None)
            else:
                self._states[shapes] = WAITING
                self._queue.append(shapes)
                self._start_thread()

    def _is_buildable(self, shapes: Shapes) -> bool:
        """No, if nothing runs for them, or another version of the model does (versions.py)."""
        try:
            return not solve(self._package, shapes).is_empty
        except (IngotError, TypeError, ValueError):  # a foreign array's shape may be no tuple
            return False

    def _start_thread(self) -> None:
        if not self._is_idle.is_set():
            return
        self._is_idle.clear()
        try:
            threading.Thread(target=self._work, name="ingot builds", daemon=True).start()
        except RuntimeError:  # no more threads: a later call tries again
            self._renew()

    # --- in the background --------------------------------------------------------------------

    def _work(self) -> None:
        while (shapes := self._next()) is not None:
            self._states[shapes] = self._result(shapes)

    def _next(self) -> Shapes | None:
        with self._lock:
            queue = self._queue  # stop() replaces it
            shapes = queue.pop(0) if queue else None
            if shapes is None:
                self._is_idle.set()
            else:
                self._states[shapes] = BUILDING
            return shapes

    def _result(self, shapes: Shapes) -> str:
        """Make the build and put it into the views; its state after that."""
        try:
            exe = self._made(self._values(shapes))
            solve(exe.package, shapes)
            self._bytes[shapes] = plan_file.size_of(exe.package)
            limit = self.settings.max_bytes
            if self._bytes[shapes] > limit:
                return f"failed: it has {self._bytes[shapes]} bytes, max_bytes is {limit}"
            return self._swap_in(shapes, exe)
        except IngotError as error:
            return "failed: " + "; ".join(filter(None, (error.what, error.why)))
        except Exception as error:  # whatever it is, calls go on with the general code
            return f"failed: {type(error).__name__}: {error}"

    def _made(self, values: Values) -> Executable:
        found = self._find(values)
        if found is None:
            self._compile(values)
            found = self._find(values)
        if found is None:
            why = "the model has changed, a limit of the compilation or of the cache was reached"
            raise IngotError("limit", "the build is not in the model cache", why=why)
        return found

    def _compile(self, values: Values) -> None:
        self._child = child = self._start(values)
        if self._is_stopped:  # stop() may have missed it
            child.kill()
        try:
            child.wait()
        finally:
            self._child = None

    def _swap_in(self, shapes: Shapes, exe: Executable) -> str:
        with self._lock:
            _, first = self._counts.pop(shapes, (0, 0))
            dropped = self._room(shapes, first)
            if dropped is None or self._is_stopped:
                return NO_ROOM
            for other in dropped:  # freed when no call runs it
                self._kept.pop(other)
                self._states.pop(other, None)
            self._kept[shapes] = exe
            for view in self._views:
                view.drop_builds(dropped)
                view.add_build(shapes, exe)
            return READY

    def _room(self, shapes: Shapes, first: int) -> list[Shapes] | None:
        """Builds to drop for another one, or for one that is under way; None: there is no room."""
        kept = sorted(self._kept, key=self._used_at)
        under_way = sum(state in (WAITING, BUILDING) for state in self._states.values())
        under_way -= self._states.get(shapes) == BUILDING
        dropped = []
        while not self._fits([*kept, shapes], under_way):
            if not kept or self._used_at(kept[0]) > first:
                return None
            dropped.append(kept.pop(0))
        return dropped

    def _fits(self, builds: list[Shapes], under_way: int) -> bool:
        total = sum(self._bytes.get(shapes, 0) for shapes in builds)
        is_within = len(builds) + under_way <= self.settings.max_builds
        return is_within and total <= self.settings.max_bytes

    def _used_at(self, shapes: Shapes) -> int:
        return max((view.used_at(shapes) for view in self._views), default=0)


def _text(values: Values) -> str:
    return ", ".join(f"{name}={size}" for name, size in values.items())


def _after_fork() -> None:
    """In a forked process: the parent's thread and child are the parent's. Ready builds stay."""
    for builds in _all:
        if builds._child is not None:
            builds._child.forget()
        builds._renew()


@atexit.register
def _stop_all() -> None:
    """No child outlives the process, and no thread loads code while the interpreter ends."""
    for builds in list(_all):
        builds.stop()
        builds.wait(EXIT_WAIT_S)


os.register_at_fork(after_in_child=_after_fork)

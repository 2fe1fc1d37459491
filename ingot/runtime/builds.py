"""Builds of one model for the sizes that its calls have often, made in the background.

In: shapes of calls, counted. Out: executables for single tuples of shapes, put into the views that
dispatch to them (specialise.py). A daemon thread has one build made at a time, by the `Maker` that
`ingot.compile` gives (build_requests.py): nothing of the compiler is imported here.

A build that had no call since the counting of another size began gives way to that size, the least
recently used first; one in use does not, so that many frequent sizes do not replace each other.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet, finalize

from ingot.runtime import plan_file
from ingot.runtime.package import Package
from ingot.runtime.sizes import Shape, solve
from ingot.support.errors import IngotError

if TYPE_CHECKING:
    from ingot.runtime.executable import Executable
    from ingot.runtime.specialise import Settings, SpecialisingExecutable

Shapes = tuple[Shape, ...]  # of all inputs
Values = Mapping[str, int]  # dynamic dimension → size
Seen = list  # of a tuple of shapes: its calls that had no build, and the clock at the first

MAX_COUNTED_SHAPES = 4096  # tuples of shapes whose calls are counted; heuristic
MAX_FAILURES = 4  # of one model, then it is not tried again: the cause is mostly the model's
EXIT_WAIT_S = 5.0  # at exit, for a thread that is loading a build; heuristic
NEVER = float("-inf")  # as a count of calls: never enough
UNDER_WAY = WAITING, BUILDING = "waiting", "building"
READY = "ready"
NO_ROOM = "no room: builds that were used more recently take it"

_all: WeakSet[Builds] = WeakSet()  # those that a fork or the exit concerns


class Maker(Protocol):
    def make(self, sizes: Values) -> Executable: ...  # in a thread of its own; may take long

    def stop(self) -> None: ...  # from any thread: fail what is being made, and all from now on

    def forget(self) -> None: ...  # in a forked process: what is being made is the parent's


class Builds:
    """`package` is the general build's."""

    def __init__(self, settings: Settings, package: Package, maker: Maker):
        self.settings, self.clock = settings, count(1).__next__  # orders the calls
        self._package, self._maker = package, maker
        self._views: WeakSet[SpecialisingExecutable] = WeakSet()
        self._seen: dict[Shapes, Seen] = {}
        self._kept: dict[Shapes, Executable] = {}
        self._states: dict[Shapes, str] = {}
        self._bytes: dict[Shapes, int] = {}  # of builds that were loaded once
        self._is_stopped = False
        self.renew()
        _all.add(self)

    def renew(self) -> None:
        """At first, and in a forked process: what is under way is the parent's, builds stay."""
        self._maker.forget()
        self._lock, self._is_idle = threading.Lock(), threading.Event()
        self._forget_requests()

    def _forget_requests(self) -> None:
        """No build is under way; the calls to come may ask for one again."""
        self._is_idle.set()
        self._queue: list[Shapes] = []
        for shapes in [k for k, state in self._states.items() if state in UNDER_WAY]:
            del self._states[shapes]
            self._seen.pop(shapes, None)

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
        self._maker.stop()

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
        seen = self._seen.get(shapes)
        if seen is None:
            if len(self._seen) >= MAX_COUNTED_SHAPES:
                self._seen.clear()
            seen = self._seen[shapes] = [0, self.clock()]
        seen[0] += 1
        if seen[0] >= self.settings.calls:
            self._request(shapes, seen)

    def _request(self, shapes: Shapes, seen: Seen) -> None:
        with self._lock:
            if self._may_build(shapes):
                if self._room(shapes, seen[1]) is None:
                    self._seen.pop(shapes, None)  # counted anew
                else:
                    self._states[shapes] = WAITING
                    self._queue.append(shapes)
                    self._start_thread()
            seen[0] = NEVER

    def _may_build(self, shapes: Shapes) -> bool:
        """No, if nothing runs for them, or another version of the model does (versions.py)."""
        failures = sum(state.startswith("failed") for state in self._states.values())
        is_new = self._states.get(shapes, NO_ROOM) == NO_ROOM
        if not is_new or failures >= MAX_FAILURES or self._is_stopped:
            return False
        try:
            return not solve(self._package, shapes).is_empty
        except (IngotError, TypeError, ValueError):  # a foreign array's shape may be no tuple
            return False

    def _start_thread(self) -> None:
        try:
            if self._is_idle.is_set():
                self._is_idle.clear()
                threading.Thread(target=self._work, name="ingot builds", daemon=True).start()
        except BaseException as error:
            self._forget_requests()
            if not isinstance(error, RuntimeError):  # no more threads: a later call tries again
                raise

    # --- in the background --------------------------------------------------------------------

    def _work(self) -> None:
        while (shapes := self._next()) is not None:
            state = self._result(shapes)
            with self._lock:
                self._states[shapes] = state

    def _next(self) -> Shapes | None:
        with self._lock:
            queue = self._queue  # stop() replaces it
            if not queue:
                self._is_idle.set()
                return None
            self._states[queue[0]] = BUILDING
            return queue.pop(0)

    def _result(self, shapes: Shapes) -> str:
        """Make the build and put it into the views; its state after that."""
        try:
            exe = self._maker.make(self._values(shapes))
            solve(exe.package, shapes)  # an error if it cannot take them
            size, limit = plan_file.size_of(exe.package), self.settings.max_bytes
            if size > limit:
                return f"failed: it has {size} bytes, max_bytes is {limit}"
            self._bytes[shapes] = size
            return self._swap_in(shapes, exe)
        except IngotError as error:
            return "failed: " + "; ".join(filter(None, (error.what, error.why)))
        except Exception as error:  # whatever it is, calls go on with the general code
            return f"failed: {type(error).__name__}: {error}"

    def _swap_in(self, shapes: Shapes, exe: Executable) -> str:
        with self._lock:
            seen = self._seen.pop(shapes, None)
            dropped = self._room(shapes, seen[1] if seen else 0)
            if dropped is None or self._is_stopped:
                return NO_ROOM
            for other in dropped:  # freed when no call runs it
                self._kept.pop(other, None)
                self._states.pop(other, None)
            self._kept[shapes] = exe
            for view in self._views:
                view.drop_builds(dropped)
                view.add_build(shapes, exe)
            return READY

    def _room(self, shapes: Shapes, first: int) -> list[Shapes] | None:
        """Builds to drop for another one, or for one that is under way; None: there is no room."""
        kept = sorted(self._kept, key=self._used_at)
        under_way = sum(state in UNDER_WAY for state in self._states.values())
        under_way -= self._states.get(shapes) == BUILDING
        size = sum(self._bytes.get(x, 0) for x in (*kept, shapes))
        dropped, most = list[Shapes](), self.settings
        while len(kept) + under_way >= most.max_builds or size > most.max_bytes:
            if not kept or self._used_at(kept[0]) > first:
                return None
            dropped.append(kept.pop(0))
            size -= self._bytes[dropped[-1]]
        return dropped

    def _used_at(self, shapes: Shapes) -> int:
        return max((view.used_at(shapes) for view in self._views), default=0)


def _text(sizes: Values) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def _after_fork() -> None:
    for builds in _all:
        builds.renew()


@atexit.register
def _stop_all() -> None:
    """No child outlives the process, and no thread loads code while the interpreter ends."""
    for builds in list(_all):
        builds.stop()
        builds.wait(EXIT_WAIT_S)


os.register_at_fork(after_in_child=_after_fork)

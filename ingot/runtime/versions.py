"""Other compilations of one model, for shapes that its first one does not accept.

A model is compiled under what its dimensions suggest: two of one name are equal, two that meet in
an element-wise operator are equal, none is empty. All of that may be otherwise in a call, and the
model still be valid: then a version for such shapes is compiled, kept, and used from then on.
Inputs with a default value are constants; a call that overrides one gets a version that takes it.

In: shapes of inputs, and the error of the first compilation. Out: an executable. Used by
executable.py; `ingot.compile` gives the function that compiles. A loaded plan has one version.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from ingot.runtime.package import Package
from ingot.runtime.sizes import Shape, solve
from ingot.support.errors import IngotError

if TYPE_CHECKING:
    from ingot.runtime.executable import Executable

MAX_VERSIONS = 16  # of one model, each with code and constants of its own; heuristic

_all: WeakSet[Versions] = WeakSet()  # those whose locks a forked child renews

Make = Callable[[Mapping[str, Shape]], "Executable"]


class Versions:
    """Compiled at the first call that needs one; calls from several threads wait for it."""

    def __init__(
        self, make: Make | None = None, defaults: Callable[[], frozenset[str]] = frozenset
    ):
        """`defaults`: the names of the inputs that have a default value; asked when needed."""
        self._make, self._made, self._lock = make, list["Executable"](), Lock()
        self._defaults, self._overriding = defaults, list["Executable"]()
        _all.add(self)

    def overriding(self, feeds: Mapping[str, Any], names: Sequence[str]) -> Executable | None:
        """The version that takes what a call gives besides the inputs; None: these have no default
        that it could override."""
        if self._make is None or not feeds.keys() - set(names) <= self._defaults():
            return None
        shapes = {name: np.shape(array) for name, array in feeds.items()}
        with self._lock:
            for exe in self._overriding:
                wanted = [port.name for port in exe.package.inputs]
                if shapes.keys() == set(wanted) and _accepts(
                    exe.package, [shapes[name] for name in wanted]
                ):
                    return exe
            if len(self._overriding) == MAX_VERSIONS:
                what = f"the model has been compiled for {MAX_VERSIONS} sets of overridden defaults"
                raise IngotError("bad-input", what, hint="make these inputs without a default")
            self._overriding.append(self._make(shapes))
            return self._overriding[-1]

    def find(self, first: Package, shapes: Sequence[Shape], error: IngotError) -> Executable:
        """The version for these shapes. If there can be none, `error`, or why there is none."""
        if self._make is None or [len(s) for s in shapes] != [len(p.shape) for p in first.inputs]:
            raise error
        with self._lock:
            found = next((exe for exe in self._made if _accepts(exe.package, shapes)), None)
            return found or self._compiled(first, shapes, error)

    def trim(self) -> int:
        """Free the memory of calls that have ended; its bytes."""
        with self._lock:
            return sum(exe.trim() for exe in (*self._made, *self._overriding))

    def _compiled(self, first: Package, shapes: Sequence[Shape], error: IngotError) -> Executable:
        if len(self._made) == MAX_VERSIONS:
            why = f"the model has been compiled for {MAX_VERSIONS} other relations of its sizes"
            raise IngotError("bad-input", error.what, where=error.where, why=why, hint=error.hint)
        assert self._make is not None
        try:
            made = self._make({port.name: shape for port, shape in zip(first.inputs, shapes)})
            solve(made.package, shapes)
        except IngotError as other:
            if other.code not in ("bad-input", "bad-type"):
                raise
            if not other.where:
                raise error from other
            why = "; ".join(filter(None, (error.what, error.why)))
            hint = error.hint or other.hint
            raise IngotError(
                "bad-input", other.what, where=other.where, why=why, hint=hint
            ) from other
        self._made.append(made)
        return made


def _renew_locks() -> None:
    """In a forked child, the thread that held a lock is not there to release it. A version that it
    was compiling is not in the list yet: the child compiles one when it needs it."""
    for versions in _all:
        versions._lock = Lock()


os.register_at_fork(after_in_child=_renew_locks)


def _accepts(package: Package, shapes: Sequence[Shape]) -> bool:
    try:
        solve(package, shapes)
    except IngotError:
        return False
    return True

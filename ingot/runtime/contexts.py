"""The memory of calls: one context for each that runs at once. Used by loaded modules of devices.

A call takes an idle context, or makes one, and gives it back when it ends; it takes no lock. So
`wait` compares what was given back with all contexts that there are, known by weak references.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakSet

C = TypeVar("C")

_POLL_S = 0.001  # between looks at what calls have given back; heuristic

_all: WeakSet[Contexts] = WeakSet()  # those that a fork concerns


class Contexts(Generic[C]):
    def __init__(self) -> None:
        self.idle: list[C] = []
        self._known: WeakSet[C] = WeakSet()
        _all.add(self)

    def add(self, context: C) -> C:
        """A new one, which its call has."""
        self._known.add(context)
        return context

    def forget(self, context: C) -> None:
        """One whose call was interrupted: nobody gives it back."""
        self._known.discard(context)

    def take_idle(self) -> list[C]:
        taken = []
        while self.idle:
            try:
                taken.append(self.idle.pop())
            except IndexError:  # a call was faster
                break
        return taken

    def wait(self, take: Callable[[], list[C]]) -> None:
        """Return when `take` has given every context: no call has one."""
        taken = take()
        while len(taken) < len(self._known):
            time.sleep(_POLL_S)
            taken += take()

    def after_fork(self) -> None:
        """The calls that have the other contexts are the parent's."""
        self._known = WeakSet(self.idle)


def _after_fork() -> None:
    for contexts in list(_all):
        contexts.after_fork()


os.register_at_fork(after_in_child=_after_fork)

"""Calls in the background: `exe.submit(x)` gives a Future. Used by executable.py.

The threads are started by the first call; each runs one call at a time, which shares the workers of
the thread pool with the others as calls of any threads do.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from threading import Lock
from typing import Any
from weakref import WeakSet

_all: WeakSet[Submissions] = WeakSet()  # those that a fork concerns


class Submissions:
    def __init__(self) -> None:
        self.renew()
        _all.add(self)

    def renew(self) -> None:
        """At first, and in a forked process, which has none of the threads."""
        self._lock = Lock()
        self._executor: ThreadPoolExecutor | None = None

    def submit(self, count: int, call: Callable[..., Any], *args: Any, **named: Any) -> Future:
        """Run a call in one of `count` threads, under the options in force here."""
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(count, thread_name_prefix="ingot call")
            return self._executor.submit(copy_context().run, call, *args, **named)

    def wait(self) -> None:
        """Until all calls have ended."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()


def _after_fork() -> None:
    for submissions in list(_all):
        submissions.renew()


os.register_at_fork(after_in_child=_after_fork)

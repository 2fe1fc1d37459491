"""Segmented stacks: a recursive walk of any depth, whatever Python's recursion limit is.

    @segmented
    def value(self, e): ...   # every cycle of the recursion passes through a function marked so

Marked calls count their nesting on the current thread. After `LEVELS` of them the walk goes on in a
new thread, which has a stack of its own, while the caller waits for its result; Clang and rustc do
the same for deep source code. Shallow walks, which is nearly all of them, only count. Walks that
are short to write without recursion use an explicit stack instead; tests/layers lists the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import Context, copy_context
from functools import wraps
from inspect import isgeneratorfunction
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

# Nested marked calls per thread. The walks have up to 8 Python frames per marked call, which makes
# 400: well within Python's default limit of 1000, also below a deep stack of the caller's.
LEVELS = 48


_nesting = threading.local()  # levels: the marked calls in progress on the thread


def segmented(walk: F) -> F:
    """Mark a recursive function or method; it takes positional arguments only. A generator runs
    after its call has returned: it needs an explicit stack."""
    assert not isgeneratorfunction(walk), f"{walk.__qualname__} is a generator"

    @wraps(walk)
    def step(*args: Any) -> Any:
        try:
            levels = _nesting.levels
        except AttributeError:  # the first marked call of this thread
            levels = 0
        if levels >= LEVELS:
            return on_new_stack(walk)(*args)
        _nesting.levels = levels + 1
        try:
            return walk(*args)
        finally:
            _nesting.levels = levels

    return step  # type: ignore[return-value]


def on_new_stack(walk: F) -> F:
    """The function, always run in a thread of its own; the caller waits for its result."""

    def run(result: Future[Any], context: Context, args: tuple[Any, ...]) -> None:
        try:
            result.set_result(context.run(walk, *args))
        except BaseException as error:  # it belongs to the waiting caller, whatever it is
            result.set_exception(error)

    def start(*args: Any) -> Any:
        result: Future[Any] = Future()
        given = (result, copy_context(), args)
        threading.Thread(target=run, args=given, name="ingot-stack", daemon=True).start()
        return result.result()

    return start  # type: ignore[return-value]

"""Map a function over items in the worker processes; results in order. Called by back ends, which
schedule and legalise kernels there, and by llvm.py.

    map_calls(function, [("scheduling of kernel matmul", kernel), …], processes)

A call that raises is repeated in this process, so that errors are the same with any number of
processes. So is everything that cannot be sent: a lambda in a user's table, a formula too deep.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ingot.codegen import workers
from ingot.codegen.call_messages import OK, requests, result

T = TypeVar("T")
FEWEST = 6  # calls that are worth a transfer; fewer are done in this process; heuristic


def map_calls(
    function: Callable[[Any], T], items: Sequence[tuple[str, Any]], processes: int
) -> list[T]:
    """`function` of every item; a process that dies or times out is an error with its name."""
    calls = _calls(function, items) if processes > 1 and len(items) >= FEWEST else []
    if not calls:
        return [function(item) for _, item in items]
    replies = workers.call_all(calls, processes)
    return [
        result(reply) if reply.startswith(OK) else function(item)
        for reply, (_, item) in zip(replies, items)
    ]


def _calls(function: Callable[[Any], Any], items: Sequence[tuple[str, Any]]) -> list[workers.Call]:
    try:
        messages = list(requests(function, [item for _, item in items]))
    except (TypeError, AttributeError, RecursionError, pickle.PicklingError):
        return []
    return [workers.Call(name, data) for (name, _), data in zip(items, messages)]

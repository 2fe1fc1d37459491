"""The CPU's way to apply a function to each kernel: in the worker processes, and verified there.

In: a session. Out: a `Map` for the stages that schedule and legalise. `start_workers` lets the
processes start at the beginning of a compilation, so that they import while the graph is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from ingot.backends.base import Session
from ingot.codegen import workers
from ingot.codegen.calls import map_calls
from ingot.loops.ir import Kernel
from ingot.loops.verify import verify
from ingot.support import options
from ingot.support.mapping import Map

T = TypeVar("T")
# what a worker calls is in these modules, by their names in support/lazy.py
IMPORTS = ("schedule.table", "legalize.program", "backends.map_kernels")


def processes_of(session: Session) -> int:
    return session.jobs or session.options.jobs or os.cpu_count() or 1


def start_workers(session: Session) -> None:
    if processes_of(session) > 1:
        workers.start(processes_of(session), IMPORTS)


def map_kernels(session: Session, stage: str) -> Map:
    """Results that are kernels are verified where they are made, if the options ask for it."""

    def apply(function: Callable[[Any], T], items: Sequence[tuple[str, Any]]) -> list[T]:
        named = [(f"{stage} of kernel {name}", item) for name, item in items]
        made = map_calls(partial(_verified, function), named, processes_of(session))
        session.verified += tuple(x for x in made if isinstance(x, Kernel))
        return made

    return apply


def _verified(function: Callable[[Any], T], item: Any) -> T:
    made = function(item)
    if options.current().verify and isinstance(made, Kernel):
        verify(made)
    return made

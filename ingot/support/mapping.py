"""How a stage applies a function to each kernel: here, or as its back end does it.

    map_kernels(function, [(name, argument), …])  →  [function(argument), …]

A stage takes such a `Map`; `map_here` is the plain one. The CPU's uses worker processes
(backends/map_kernels.py), so the function is one of a module, or a `partial` of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Map(Protocol):
    def __call__(
        self, function: Callable[[Any], T], items: Sequence[tuple[str, Any]]
    ) -> list[T]: ...


def map_here(function: Callable[[Any], T], items: Sequence[tuple[str, Any]]) -> list[T]:
    return [function(argument) for _, argument in items]

"""A kernel seen from outside: what must be given, what it makes, and its sizes from shapes.

In: a kernel, and shapes of arguments as integer expressions. Out: roles of the parameters and the
values of its sizes. Called by the operator that wraps a kernel and by kernels that are called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ingot.arith import expr as arith
from ingot.arith.solve import solve
from ingot.loops import ir, visit
from ingot.loops.canonical import digest
from ingot.loops.ir import Buffer

Shape = Sequence[arith.Expr]
Reference = Callable[..., np.ndarray | Sequence[np.ndarray]]


@dataclass(frozen=True)
class Signature:
    """Parameters by role, each in the kernel's order."""

    inputs: tuple[Buffer, ...]  # whose content the kernel reads: to be given
    outputs: tuple[Buffer, ...]  # that the kernel writes; one updated in place is both

    @property
    def made(self) -> tuple[Buffer, ...]:
        """Outputs that need not be given."""
        return tuple(p for p in self.outputs if p not in self.inputs)


@lru_cache(maxsize=256)
def signature(kernel: ir.Kernel) -> Signature:
    written, first = visit.written(kernel.body), visit.read_first(kernel.body)
    return Signature(
        tuple(p for p in kernel.params if p.name not in written or p.name in first),
        tuple(p for p in kernel.params if p.name in written),
    )


# --- sizes ----------------------------------------------------------------------------------------


def solve_sizes(kernel: ir.Kernel, shapes: Mapping[str, Shape]) -> dict[str, arith.Expr]:
    """The sizes that the shapes of some parameters determine: a dimension `n` gives n, one such as
    `2 * n + 1` gives it where the division has no rest. Whether all of them agree is not asked."""
    return solve(
        (dim, found)
        for param in kernel.params
        for dim, found in zip(param.shape, shapes.get(param.name, ()))
    )


def is_allowed(size: ir.Size, number: int) -> bool:
    in_range = size.low <= number and (size.high is None or number <= size.high)
    return in_range and number % size.divisor == 0


def demand(size: ir.Size) -> str:
    """In words, what a size must be."""
    span = f"{size.low} or more" if size.high is None else f"{size.low} to {size.high}"
    return span + (f", a multiple of {size.divisor}" if size.divisor != 1 else "")


# --- the user's own numpy function ----------------------------------------------------------------

_REFERENCES: dict[str, Reference] = {}


def set_reference(kernel: ir.Kernel, reference: Reference) -> None:
    """`reference(*inputs)` gives what the kernel makes, by numpy. It is never on the path of
    compiled code: the graph interpreter and constant folding use it."""
    _REFERENCES[digest(kernel)] = reference


def reference_of(kernel: ir.Kernel) -> Reference | None:
    return _REFERENCES.get(digest(kernel)) if _REFERENCES else None

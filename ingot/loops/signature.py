"""A kernel's signature: its inputs and outputs, and its sizes inferred from argument shapes.

In: a kernel, and shapes of arguments as integer expressions. Out: roles of the parameters and the
values of its sizes. Used by the operator that wraps a kernel and by direct kernel calls.
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

    inputs: tuple[Buffer, ...]  # the kernel reads their content: the caller passes them
    outputs: tuple[Buffer, ...]  # the kernel writes them; one updated in place is also an input

    @property
    def new_outputs(self) -> tuple[Buffer, ...]:
        """Outputs that are not inputs too."""
        return tuple(p for p in self.outputs if p not in self.inputs)


@lru_cache(maxsize=256)
def signature(kernel: ir.Kernel) -> Signature:
    written, first = visit.written(kernel.body), visit.read_before_write(kernel.body)
    return Signature(
        tuple(p for p in kernel.params if p.name not in written or p.name in first),
        tuple(p for p in kernel.params if p.name in written),
    )


# --- sizes ----------------------------------------------------------------------------------------


def solve_sizes(kernel: ir.Kernel, shapes: Mapping[str, Shape]) -> dict[str, arith.Expr]:
    """The sizes determined by the shapes of some parameters: a dimension `n` gives n; `2 * n + 1`
    gives n where the division is exact. Consistency of all dimensions is not checked."""
    return solve(
        (dim, found)
        for param in kernel.params
        for dim, found in zip(param.shape, shapes.get(param.name, ()))
    )


def is_allowed(size: ir.Size, number: int) -> bool:
    in_range = size.low <= number and (size.high is None or number <= size.high)
    return in_range and number % size.divisor == 0


def describe_range(size: ir.Size) -> str:
    """The constraint on a size, as text for messages."""
    span = f"{size.low} or more" if size.high is None else f"{size.low} to {size.high}"
    return span + (f", a multiple of {size.divisor}" if size.divisor != 1 else "")


# --- the user's own numpy function ----------------------------------------------------------------

_REFERENCES: dict[str, Reference] = {}


def set_reference(kernel: ir.Kernel, reference: Reference) -> None:
    """Register a numpy reference: `reference(*inputs)` returns the kernel's outputs. The graph
    interpreter and constant folding use it; compiled code never does."""
    _REFERENCES[digest(kernel)] = reference


def reference_of(kernel: ir.Kernel) -> Reference | None:
    return _REFERENCES.get(digest(kernel)) if _REFERENCES else None

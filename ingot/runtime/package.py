"""What the compiler hands to the runtime: code, tables and facts, as pure data.

In: filled by backends/cpu.py. Out: read by executable.py; a plan file holds one. Sizes
are integer expressions over the package's symbols.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ingot.arith.expr import Expr
from ingot.runtime.report import LaunchRow, Pace


@dataclass(frozen=True)
class Place:
    """Where a port's bytes are: kind "slot" (the caller's array, by number), "dynamic" (a grown
    allocation, by number) or "arena" (by number and byte offset; fetched after the run)."""

    kind: str
    number: int
    offset: Expr | None = None


@dataclass(frozen=True)
class Port:
    """One input or output: name, element type (its spelling), shape, and place."""

    name: str
    dtype: str
    shape: tuple[Expr, ...]
    place: Place

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class SizeSymbol:
    """A size: known from the inputs' shapes ("input") or bound while running ("node")."""

    name: str
    low: int
    high: int | None
    divisor: int
    source: str


@dataclass(frozen=True)
class ArenaSpec:
    """`is_host_reserved`: its size follows from the inputs, so the host has it ready for a run."""

    name: str
    size_bytes: Expr
    is_host_reserved: bool


@dataclass(frozen=True)
class LaunchInfo:
    """What an error record's launch number means: the user's node, and the kernel's reasons."""

    kernel: str
    origin: str
    reasons: tuple[str, ...]
    is_kernel: bool = True  # False: the binding of a size


@dataclass(frozen=True)
class Probe:
    """Code that finds out what the target can do at most (codegen/llvm_probe.py)."""

    code: bytes
    flops_per_turn: int  # of its multiply-add loop
    caches: tuple[int, ...]  # bytes, nearest first


@dataclass(frozen=True)
class Package:
    name: str
    kernel_objects: tuple[bytes, ...]  # one a kernel, in the order of the kernel table
    kernel_symbol: str
    entry_object: bytes
    entry_symbol: str
    support_object: bytes
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    state: tuple[tuple[str, str], ...]
    symbols: tuple[SizeSymbol, ...]
    slot_count: int
    dynamic_count: int
    arenas: tuple[ArenaSpec, ...]
    constants: np.ndarray  # uint8, 64-byte aligned, read only
    scratch_bytes: Expr  # of one thread
    launches: tuple[LaunchInfo, ...]
    max_threads: int | None  # no more have a piece of work; None: as many as there are
    work_ns: Expr | None  # what a run takes one thread, roughly; None where nobody can tell
    doubtful: tuple[tuple[str, Expr], ...] = ()  # tensors, and sizes of theirs that may be negative
    probe: Probe | None = None  # there if the entry counts cycles
    report: tuple[LaunchRow, ...] = field(default=())
    pace: Pace | None = None  # what one core is taken to do, for the report's predictions
    features: tuple[str, ...] = ()  # that the code needs of the processor, in LLVM's words
    notes: tuple[str, ...] = ()  # what the report says before its table

    @property
    def is_profiled(self) -> bool:
        return self.probe is not None

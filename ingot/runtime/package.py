"""What the compiler gives the runtime: object code and tables, as pure data.

In: filled by backends/cpu.py. Out: read by executable.py; a plan file holds one. Sizes are integer
expressions over the package's symbols (dynamic dimensions).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ingot.arith.expr import Expr
from ingot.runtime.report import LaunchRow, MachineModel


@dataclass(frozen=True)
class Storage:
    """Where a port is stored: kind "slot" (the caller's array, by number), "dynamic" (an allocation
    made by the run, by number) or "arena" (by number and byte offset; copied out after the run)."""

    kind: str
    number: int
    offset: Expr | None = None


@dataclass(frozen=True)
class Port:
    """One input or output: its name, element type (by name), shape and storage."""

    name: str
    dtype: str
    shape: tuple[Expr, ...]
    storage: Storage

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class SizeSymbol:
    """A dynamic dimension: solved from the inputs' shapes (source "input"), or data-dependent and
    computed by the run (source "node"). Its value is in low … high and a multiple of divisor."""

    name: str
    low: int
    high: int | None
    divisor: int
    source: str


@dataclass(frozen=True)
class ArenaSpec:
    """`is_host_reserved`: its size follows from the inputs' shapes; allocated before the run."""

    name: str
    size_bytes: Expr
    is_host_reserved: bool


@dataclass(frozen=True)
class LaunchInfo:
    """What an error record's launch number means: the user's node, and the kernel's messages."""

    kernel: str
    origin: str
    reasons: tuple[str, ...]
    is_kernel: bool = True  # False: it computes a data-dependent size


@dataclass(frozen=True)
class Probe:
    """Code that measures peak FLOP/s and bandwidth (codegen/llvm_probe.py)."""

    code: bytes
    flops_per_iteration: int  # FLOPs of one iteration of its FMA loop
    caches: tuple[int, ...]  # bytes of L1, L2 …


@dataclass(frozen=True)
class Package:
    name: str
    kernel_objects: tuple[bytes, ...]  # one per kernel, in the order of the kernel table
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
    scratch_bytes: Expr  # per thread
    launches: tuple[LaunchInfo, ...]
    max_threads: int | None  # most threads that can have work; None: no limit
    work_ns: Expr | None  # estimated time of a run on one thread; None: unknown
    maybe_negative_sizes: tuple[tuple[str, Expr], ...] = ()  # (tensor, size), checked in each call
    memory_bounds: tuple[tuple[str, Expr], ...] = ()  # (buffer, room): not negative, per call
    probe: Probe | None = None  # only in a profiled build, whose entry counts cycles
    report: tuple[LaunchRow, ...] = field(default=())
    machine_model: MachineModel | None = None  # one core's roofline, for the report's predictions
    features: tuple[str, ...] = ()  # CPU features that the code needs, by LLVM's names
    notes: tuple[str, ...] = ()  # lines that the report prints above its table

    @property
    def is_profiled(self) -> bool:
        return self.probe is not None

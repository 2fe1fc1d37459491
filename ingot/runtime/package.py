"""What the compiler gives the runtime: code for devices and tables, as pure data.

In: filled by a back end (backends/packaging.py). Out: read by executable.py and by the device that
runs it; a plan file holds one. Sizes are integer expressions over the package's symbols (dynamic
dimensions). What only one device understands is in that device's `Module`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ingot.arith.expr import Expr
from ingot.runtime.report import LaunchRow, MachineModel

HOST = "cpu"  # the device whose memory holds numpy arrays


@dataclass(frozen=True)
class Module:
    """Code and facts for one device, as named bytes. `kind` is the format, for that device alone:
    the CPU's is "elf" (cpu/module.py); a plan file stores any."""

    device: str
    kind: str
    blobs: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class Storage:
    """Where a port is stored: kind "slot" (the caller's array, by number), "dynamic" (an allocation
    made by the run, by number) or "arena" (by number and byte offset; copied out after the run)."""

    kind: str
    number: int
    offset: Expr | None = None


@dataclass(frozen=True)
class Port:
    """One input or output: its name, element type (by name), shape, storage, and the device whose
    memory holds the caller's array. `kind` is another one for what a call sees of a bundle."""

    name: str
    dtype: str
    shape: tuple[Expr, ...]
    storage: Storage
    device: str = HOST
    kind: str = "tensor"

    def __str__(self) -> str:
        if self.kind != "tensor":
            return f"{self.name}: {self.kind} of {self.dtype}"
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Bundle:
    """Ports that are one argument or result of a call, a sequence or an optional: bundles.py. The
    `values` are the names of adjacent ports."""

    name: str
    kinds: tuple[str, ...]
    values: tuple[str, ...]


@dataclass(frozen=True)
class SizeSymbol:
    """A dynamic dimension: solved from the inputs' shapes (source "input"), the rows in use of the
    states (source "state"), or data-dependent and computed by the run (source "node"). Its value
    is in low … high and a multiple of divisor."""

    name: str
    low: int
    high: int | None
    divisor: int
    source: str


@dataclass(frozen=True)
class Growth:
    """States with a capacity, which the caller keeps in a `State` (state.py). `rows` is the symbol
    of the rows in use after a run, `added` how many of them the run adds; `axes` has the axis of
    the rows for each state that grows, by the name of its input."""

    rows: str
    added: Expr
    axes: tuple[tuple[str, int], ...]


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
class HostStep:
    """A step that Python does during a run (host_steps.py): its function, its attributes, element
    type and rank of its operands (None: absent) and results, and the names under which results
    are kept between the two parts of a step whose sizes depend on data. `sizes`, (result, axis)
    each, are what the first part writes."""

    name: str
    attrs: tuple[tuple[str, object], ...]
    inputs: tuple[tuple[str, int] | None, ...]
    outputs: tuple[tuple[str, int], ...]
    keeps: str = ""
    takes: str = ""
    sizes: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Package:
    """The device of the first module runs the package, and is given all of it."""

    name: str
    modules: tuple[Module, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    state: tuple[tuple[str, str], ...]
    symbols: tuple[SizeSymbol, ...]
    arenas: tuple[ArenaSpec, ...]
    constants: np.ndarray  # uint8, 64-byte aligned, read only
    scratch_bytes: Expr  # per thread
    launches: tuple[LaunchInfo, ...]
    max_threads: int | None  # most threads that can have work; None: no limit
    work_ns: Expr | None  # estimated time of a run on one thread; None: unknown
    maybe_negative_sizes: tuple[tuple[str, Expr], ...] = ()  # (tensor, size), checked in each call
    memory_bounds: tuple[tuple[str, Expr], ...] = ()  # (buffer, room): not negative, per call
    offsets: tuple[tuple[str, Expr], ...] = ()  # of a dynamic memory plan, each by earlier ones
    report: tuple[LaunchRow, ...] = field(default=())
    machine_model: MachineModel | None = None  # one core's roofline, for the report's predictions
    growth: Growth | None = None  # None: states, if any, are inputs of a call
    host_steps: tuple[HostStep, ...] = ()  # in program order
    # inputs that are maps, as vectors `name.keys` and `name.values`; outputs that are lists of
    # maps, one for each row, with the labels of the columns
    map_inputs: tuple[str, ...] = ()
    map_outputs: tuple[tuple[str, tuple[str | int, ...]], ...] = ()
    strings: tuple[str, ...] = ()  # of constants, by number; () if no buffer holds strings
    bundles: tuple[Bundle, ...] = ()
    notes: tuple[str, ...] = ()  # lines that the report prints above its table
    signature: str = ""  # how the PyTorch module is called: module_signature.py; empty: arrays
    initial: tuple[tuple[str, np.ndarray], ...] = ()  # first contents of states that it keeps
    # inputs that are a module's own tensors: (input, name of the tensor, do no constants depend on
    # its contents); `initial` has what they were when they were compiled
    borrowed: tuple[tuple[str, str, bool], ...] = ()
    # for new weights in the same code (ingot/refresh.py): a digest of the graph without its
    # constants, and where in `constants` each buffer of the program is; empty: not asked for
    fingerprint: str = ""
    constant_places: tuple[tuple[str, int], ...] = ()

    @property
    def device(self) -> str:
        """The device that runs it, by name."""
        return self.modules[0].device

    @property
    def kernel_names(self) -> set[str]:
        return {launch.kernel for launch in self.launches if launch.is_kernel}

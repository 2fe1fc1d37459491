"""What a device is: an object that loads packages and has memory. Found by name in devices.py.

    class Acme:
        name, default_threads = "acme", 1
        def why_not(self, package): …    why it cannot run here; empty if it can
        def load(self, package): …       a LoadedModule, which runs it
        allocate, copy, from_dlpack, synchronize: its memory, for ports that are on the device

An executable (executable.py) checks names, types and shapes, solves sizes and makes the outputs of
ports in host memory; everything else is behind these two protocols. A device from another package
is an entry point of the group `ingot.devices`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ingot.runtime.package import Package
from ingot.runtime.profile import Counters
from ingot.runtime.sizes import Shape, Sizes
from ingot.runtime.trace import Events

# A numpy array for a port on the host; else an array of the port's device, with shape and dtype.
Array = Any


class LoadedModule(Protocol):
    """A package in memory, ready to run. Several Python threads may run it at once. It holds what
    it needs until it is closed or garbage-collected."""

    threads: int  # most threads of one call; a device without threads ignores it
    has_counters: bool  # compiled with profile=True

    def run(
        self,
        sizes: Sizes,
        inputs: Sequence[Array],
        outputs: list[Array | None],
        threads: int | None,
        is_plain: bool,
    ) -> list[Array]:
        """The outputs: the given arrays, filled in, and new ones where the given one is None, since
        its size is data-dependent. `threads` is for this call only; None: as usual. `is_plain`: the
        inputs are the caller's own arrays and the outputs are new ones, so that a later call with
        equal shapes may go through `repeat`. An error names the model's node (failure.py)."""
        ...

    def repeat(self, inputs: Sequence[Any]) -> list[Array] | None:
        """A fast path: run once more with unchecked inputs. None if they are not like
        those of the last plain run, or always; the caller then calls `run`."""
        ...

    def context(self) -> LoadedModule:
        """The same code with its own memory and thread count."""
        ...

    def start_counters(self) -> None:
        """Forget what was counted so far; the executable has run once."""
        ...

    def counters(self) -> Counters:
        """What was counted since `start_counters`."""
        ...

    def trace(self, call: Callable[[], None], calls: int) -> Events:
        """When each thread did what in so many calls; `call` runs the module once."""
        ...

    def close(self) -> None:
        """Free code and memory, when the calls that have begun have ended. `run` is an error from
        then on."""
        ...

    def trim(self) -> int:
        """Free the memory that no call is using, for calls to come to make again; its bytes."""
        ...


class Device(Protocol):
    name: str

    @property
    def default_threads(self) -> int: ...

    def why_not(self, package: Package) -> str: ...

    def load(self, package: Package) -> LoadedModule: ...

    def allocate(self, shape: Shape, dtype: np.dtype) -> Array:
        """A new array in the device's memory; its elements are not initialised."""
        ...

    def copy(self, to: Array, source: Array) -> None:
        """Copy between arrays of equal shape and type, each on this device or on the host."""
        ...

    def from_dlpack(self, value: Any, where: str) -> Array:
        """The caller's array for a port on this device, by DLPack: over the same memory if it is on
        the device, else a copy. `where` names the port in errors."""
        ...

    def synchronize(self) -> None:
        """Wait until all runs and copies that have begun are done."""
        ...

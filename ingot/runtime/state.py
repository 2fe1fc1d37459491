"""The state of a model between calls: arrays of full capacity, updated in place (a KV cache).

    cache = exe.new_state(batch=1)      exe(tokens, state=cache)      cache.length
    cache["past_key"]: a view of the rows in use      cache.reset(): empty again

In: a package with growth and its dynamic dimensions. Out: the arrays that executable.py passes as
the inputs of these names. One call at a time uses a state; executables whose states have the same
names, types and shapes can take turns with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.runtime.failure import no_memory
from ingot.runtime.package import Growth, Package, Port
from ingot.support.abi import ALIGNMENT
from ingot.support.errors import IngotError


class State:
    """Arrays by the name of the model's input; `length` rows of those that grow are in use."""

    def __init__(self, package: Package, sizes: Mapping[str, int]):
        growth = _growth(package)
        ports = [port for port in package.inputs if port.name in dict(package.state)]
        _check_sizes(package, ports, sizes)
        self.memory, self.arrays = _allocate(ports, sizes)
        self.capacity = next(s.high or 0 for s in package.symbols if s.name == growth.rows)
        self._axes = dict(growth.axes)
        self._length = 0
        self._lock = Lock()

    @property
    def length(self) -> int:
        """The rows in use."""
        return self._length

    def __getitem__(self, name: str) -> np.ndarray:
        """The rows in use, without a copy; all of a state that does not grow."""
        array, axis = self.arrays[name], self._axes.get(name)
        if axis is None:
            return array
        return array[(slice(None),) * axis + (slice(self._length),)]

    def keys(self) -> Iterator[str]:
        """The names of the states; dict(state) has the rows in use of all."""
        return iter(self.arrays)

    def __repr__(self) -> str:
        names = ", ".join(self.arrays)
        return f"<ingot.State: {self._length} of {self.capacity} rows in use, {names}>"

    def reset(self, length: int = 0) -> None:
        """Keep the first `length` rows. States that do not grow are zero again; then it must be 0,
        since nothing else is known of what they were."""
        is_int = isinstance(length, int) and not isinstance(length, bool)
        if not is_int or not 0 <= length <= self._length:
            what = f"reset(length={length!r}), with {self._length} rows in use"
            raise IngotError("bad-option", what, hint=f"give 0 to {self._length}: it only shortens")
        fixed = [name for name in self.arrays if name not in self._axes]
        if fixed and length:
            what = f"reset(length={length}) cannot restore {fixed[0]!r}"
            why = "it does not grow: its earlier values are overwritten"
            raise IngotError("bad-option", what, why=why, hint="reset() starts over")
        with self.in_use():
            for name in fixed:
                self.arrays[name][...] = 0
            self._length = length

    def grown(self, length: int) -> None:
        """A call has added rows: `length` are in use now."""
        self._length = length

    @contextmanager
    def in_use(self) -> Iterator[None]:
        if not self._lock.acquire(blocking=False):
            raise IngotError(
                "bad-input",
                "the state is in use by another call",
                why="a call writes to it and adds to its length",
                hint="use one state for each sequence: exe.new_state()",
            )
        try:
            yield
        finally:
            self._lock.release()


def _growth(package: Package) -> Growth:
    if package.growth is None:
        what = "this executable keeps no state between calls"
        hint = 'compile it with state={"past": "present"}, capacity=1024'
        raise IngotError("bad-option", what, hint=hint)
    return package.growth


def _check_sizes(package: Package, ports: list[Port], sizes: Mapping[str, int]) -> None:
    """An error unless `sizes` are the dynamic dimensions of the states, each in its range."""
    wanted = sorted({name for port in ports for dim in port.shape for name in arith.free_vars(dim)})
    hint = f"new_state({', '.join(f'{name}=…' for name in wanted)})"
    for name in sizes:
        if name not in wanted:
            what = f"new_state: {name!r} is not a dynamic dimension of the states"
            raise IngotError("bad-option", what, hint=hint)
    for symbol in (s for s in package.symbols if s.name in wanted):
        size, top = sizes.get(symbol.name), "…" if symbol.high is None else symbol.high
        if not isinstance(size, int) or isinstance(size, bool):
            what = f"new_state: no size is given for {symbol.name!r}"
            raise IngotError("bad-option", what, hint=hint)
        is_above = symbol.high is not None and size > symbol.high
        if size < symbol.low or is_above or size % symbol.divisor:
            step = f" in steps of {symbol.divisor}" if symbol.divisor != 1 else ""
            what = f"new_state: {symbol.name!r} is {size}, outside {symbol.low} to {top}{step}"
            raise IngotError("bad-option", what)


def _allocate(
    ports: list[Port], sizes: Mapping[str, int]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """One zeroed block and the states in it, each aligned."""
    places, total = [], 0
    for port in ports:
        shape = tuple(arith.evaluate(dim, sizes) for dim in port.shape)
        dtype = dtypes.of(port.dtype).numpy
        count = math.prod(shape) * dtype.itemsize
        places.append((port.name, shape, dtype, total, count))
        total += -(-count // ALIGNMENT) * ALIGNMENT
    try:
        memory = np.zeros(total + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError) as error:
        raise no_memory(f"the states take {total} bytes", "new_state") from error
    start = -memory.ctypes.data % ALIGNMENT
    arrays = {
        name: memory[start + at : start + at + count].view(dtype).reshape(shape)
        for name, shape, dtype, at, count in places
    }
    return memory, arrays

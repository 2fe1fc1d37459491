"""The output arrays of a call: new ones, the caller's (out=), a state's array, or none yet where
only the run decides the size. Used by executable.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.runtime import devices
from ingot.runtime.arrays import from_dlpack, may_share_memory
from ingot.runtime.package import HOST, Package, Port
from ingot.runtime.sizes import Shape, Sizes
from ingot.support.errors import IngotError

_empty = np.empty


class Results:
    """How to make the outputs of a call: what is the same for all calls, computed once."""

    def __init__(self, package: Package):
        self._package = package
        every = {port.name: i for i, port in enumerate(package.outputs)}
        self.dtypes = [dtypes.of(port.dtype).numpy for port in package.outputs]
        inputs = {port.name: i for i, port in enumerate(package.inputs)}
        self._states = {every[new]: inputs[old] for old, new in package.state}
        hidden = self._states if package.growth is not None else ()
        self._names = {name: i for name, i in every.items() if i not in hidden}  # of a call
        self.returned = list(self._names.values()) if hidden else None  # positions; None: all
        kinds = {port.storage.kind for port in package.outputs}
        is_on_host = all(port.device == HOST for port in package.outputs)
        self.is_plain = kinds <= {"slot"} and not self._states and is_on_host

    def positions(self, names: Sequence[str]) -> list[int]:
        """The positions of the outputs with these names."""
        unknown = [repr(name) for name in names if name not in self._names]
        if unknown:
            raise IngotError(
                "bad-input",
                f"no output is called {', '.join(unknown)}",
                why=self._why_unknown(names),
                hint="the outputs are " + ", ".join(map(str, self._shown())),
            )
        return [self._names[name] for name in names]

    def _shown(self) -> list[Port]:
        return [self._package.outputs[i] for i in self._names.values()]

    def _why_unknown(self, names: Sequence[str]) -> str:
        old = {new: old for old, new in self._package.state}
        kept = [f"state[{old[name]!r}] has {name!r}" for name in names if name in old]
        return "; ".join(kept)

    def arrays(
        self, sizes: Sizes, inputs: Sequence[np.ndarray], out: Any
    ) -> list[np.ndarray | None]:
        """The array that each output is written to; None if its size is data-dependent."""
        if out is None and self.is_plain:
            return _new_arrays(sizes.outputs, self.dtypes)
        given = {} if out is None else self.given(out)
        results: list[np.ndarray | None] = []
        for i, port in enumerate(self._package.outputs):
            shape, state = sizes.outputs[i], self._states.get(i)
            if state is not None:
                _refuse_other(given.get(i), inputs[state], port)
                results.append(inputs[state])
            elif i in given:
                results.append(_checked(given[i], port, shape, self.dtypes[i]))
                _refuse_overlap(results, i, port, inputs)
            elif port.storage.kind == "slot" and shape is not None:
                make = _empty if port.device == HOST else devices.find(port.device).allocate
                results += _new_arrays((shape,), [self.dtypes[i]], make)
            else:
                results.append(None)
        return results

    def filled(self, results: Sequence[np.ndarray | None], sizes: Sizes) -> list[np.ndarray]:
        """The outputs of a call in which none has an element."""
        rows = zip(results, sizes.outputs, self.dtypes)
        return [np.empty(shape or (), dtype) if r is None else r for r, shape, dtype in rows]

    def given(self, out: Any) -> dict[int, Any]:
        """out= as {position: array}. It is one array, a sequence (None: a new array), or a dict."""
        if isinstance(out, np.ndarray) or hasattr(out, "__dlpack__"):
            out = [out]
        if isinstance(out, Mapping):
            return dict(zip(self.positions(list(out)), out.values()))
        if not isinstance(out, Sequence) or isinstance(out, str | bytes):
            raise IngotError(
                "bad-input",
                f"out= is a {type(out).__name__}",
                hint="give an array, a list with one for each output, or a dict by name",
            )
        if len(out) != len(self._names):
            raise IngotError(
                "bad-input",
                f"out= has {len(out)} arrays for {len(self._names)} outputs",
                hint="in this order, None for a new array: " + ", ".join(self._names),
            )
        given = zip(self._names.values(), out)
        return {i: array for i, array in given if array is not None}


def _new_arrays(
    shapes: Sequence[Shape | None], types: Sequence[np.dtype], make: Callable[..., Any] = _empty
) -> list:
    try:
        return list(map(make, shapes, types))
    except ValueError as error:  # the number of bytes overflows
        raise MemoryError(str(error)) from error


def _checked(value: Any, port: Port, shape: Shape | None, dtype: np.dtype) -> np.ndarray:
    """The caller's array, if it has the output's type and shape."""
    if port.device != HOST:
        raise IngotError(
            "bad-input",
            f"out= cannot hold output {port.name!r}",
            why=f"it is in the memory of the device {port.device!r}",
            hint="omit it from out= and use the array that the call returns",
        )
    if shape is None or port.storage.kind != "slot":
        raise IngotError(
            "bad-input",
            f"out= cannot hold output {port.name!r}",
            why="its size is data-dependent: known only after the run",
            hint="omit it from out= and use the array that the call returns",
        )
    where = f"out= array for {port.name!r}"
    array = value if isinstance(value, np.ndarray) else from_dlpack(value, where)
    wrong = ""
    if array.dtype != dtype:
        wrong = f"has dtype {array.dtype}, expected {dtype}"
    elif array.shape != shape:
        wrong = f"has shape {list(array.shape)}, expected {list(shape)}"
    elif not array.flags.writeable:
        wrong = "is read-only"
    elif not array.flags.carray:
        wrong = "is not C-contiguous and aligned"
    if wrong:
        raise IngotError(
            "bad-input", f"{where} {wrong}", hint=f"np.empty({shape}, {str(dtype)!r}) fits"
        )
    return array


def _refuse_overlap(
    results: list[np.ndarray | None], number: int, port: Port, inputs: Sequence[np.ndarray]
) -> None:
    """Aliasing check: all arrays are contiguous, so overlapping bounds mean shared memory."""
    array = results[number]
    assert array is not None
    others = [r for r in results[:number] if r is not None]
    for what, arrays in (("an input", inputs), ("another output", others)):
        if any(may_share_memory(array, other) for other in arrays):
            raise IngotError(
                "bad-input",
                f"out= array for {port.name!r} shares memory with {what}",
                hint="to update an input in place, compile with state={input: output}",
            )


def _refuse_other(given: Any, state: np.ndarray, port: Port) -> None:
    if given is not None and given is not state:
        raise IngotError(
            "bad-input",
            f"out= names {port.name!r}, which is a state",
            why="a state is updated in place, in the array that was given as its input",
        )

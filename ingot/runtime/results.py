"""Where a call's outputs go: new arrays, the caller's own (out=), a state's array, or memory that
the run itself sizes, copied out afterwards. Used by executable.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.runtime.arrays import from_dlpack
from ingot.runtime.context import Context
from ingot.runtime.package import Package, Port
from ingot.runtime.sizes import Shape, Sizes
from ingot.support.errors import IngotError

_empty = np.empty


class Results:
    """What does not change from call to call, worked out once."""

    def __init__(self, package: Package):
        self._package = package
        self._names = {port.name: i for i, port in enumerate(package.outputs)}
        self.dtypes = [dtypes.of(port.dtype).numpy for port in package.outputs]
        inputs = {port.name: i for i, port in enumerate(package.inputs)}
        self._states = {self._names[new]: inputs[old] for old, new in package.state}
        kinds = {port.place.kind for port in package.outputs}
        self.is_plain = kinds <= {"slot"} and not self._states

    def places(self, names: Sequence[str]) -> list[int]:
        """The positions of the outputs called so."""
        unknown = [repr(name) for name in names if name not in self._names]
        if unknown:
            raise IngotError(
                "bad-input",
                f"no output is called {', '.join(unknown)}",
                hint="the outputs are " + ", ".join(map(str, self._package.outputs)),
            )
        return [self._names[name] for name in names]

    def arrays(
        self, sizes: Sizes, inputs: Sequence[np.ndarray], out: Any
    ) -> list[np.ndarray | None]:
        """The array each output is written to; None for one whose size the run decides."""
        if out is None and self.is_plain:
            return _fresh(sizes.outputs, self.dtypes)
        chosen = {} if out is None else self._chosen(out)
        results: list[np.ndarray | None] = []
        for i, port in enumerate(self._package.outputs):
            shape, state = sizes.outputs[i], self._states.get(i)
            if state is not None:
                _refuse_other(chosen.get(i), inputs[state], port)
                results.append(inputs[state])
            elif i in chosen:
                results.append(_accept(chosen[i], port, shape, self.dtypes[i]))
                _refuse_overlap(results, i, port, inputs)
            elif port.place.kind == "slot":
                results += _fresh((shape,), [self.dtypes[i]])
            else:
                results.append(None)
        return results

    def _chosen(self, out: Any) -> dict[int, Any]:
        """out= as {position: array}: one array, a sequence with None for "make it", or a dict."""
        if isinstance(out, np.ndarray) or hasattr(out, "__dlpack__"):
            out = [out]
        if isinstance(out, Mapping):
            return dict(zip(self.places(list(out)), out.values()))
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
                hint="in this order, None for one to be made: " + ", ".join(self._names),
            )
        return {i: array for i, array in enumerate(out) if array is not None}

    def finish(self, context: Context, results: list[np.ndarray | None]) -> list[np.ndarray]:
        """Copy out what became known while running."""
        if self.is_plain:
            return results  # type: ignore[return-value]
        return [
            self._fetch(context, i) if result is None else result
            for i, result in enumerate(results)
        ]

    def _fetch(self, context: Context, number: int) -> np.ndarray:
        port = self._package.outputs[number]
        known = dict(zip((s.name for s in self._package.symbols), context.symbols()))
        shape = tuple(arith.evaluate(dim, known) for dim in port.shape)
        (result,) = _fresh((shape,), [self.dtypes[number]])
        if result.nbytes:
            if port.place.kind == "dynamic":
                source = context.dynamic(port.place.number)
            else:
                assert port.place.offset is not None
                source = context.arena(port.place.number)
                source += arith.evaluate(port.place.offset, known)
            ctypes.memmove(result.ctypes.data, source, result.nbytes)
        return result


def _fresh(shapes: Sequence[Shape | None], types: Sequence[np.dtype]) -> list:
    try:
        return list(map(_empty, shapes, types))  # type: ignore[arg-type]
    except ValueError as error:  # numpy cannot even count the bytes
        raise MemoryError(str(error)) from error


def _accept(value: Any, port: Port, shape: Shape | None, dtype: np.dtype) -> np.ndarray:
    """The caller's own array, if the output fits it."""
    if shape is None or port.place.kind != "slot":
        raise IngotError(
            "bad-input",
            f"output {port.name!r} cannot be given by out=",
            why="its size is known only after the run",
            hint="leave it out of out=, and take what the call returns",
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
    """All are contiguous, so shared bounds mean shared bytes."""
    array = results[number]
    assert array is not None
    others = [r for r in results[:number] if r is not None]
    for what, arrays in (("an input", inputs), ("another output", others)):
        if any(np.may_share_memory(array, other) for other in arrays):
            raise IngotError(
                "bad-input",
                f"out= array for {port.name!r} shares memory with {what}",
                hint="to update an input in place, compile with state={input: output}",
            )


def _refuse_other(chosen: Any, state: np.ndarray, port: Port) -> None:
    if chosen is not None and chosen is not state:
        raise IngotError(
            "bad-input",
            f"out= names {port.name!r}, which is a state",
            why="a state is updated in the array that was given as its input",
        )

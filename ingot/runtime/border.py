"""What a call needs beyond plain arrays: strings, and the steps that Python does in it.

In: what the caller gives and, after the run, what the compiled code made. Out: numbers into a table
of strings for the code, object arrays of str for the caller. Used by executable.py, only for models
that have strings or host steps. Each call has a table of its own on top of the model's, so that
calls of several threads do not meet, and it is freed after the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ingot.runtime.device import Array
from ingot.runtime.host_calls import HostCall, calling
from ingot.runtime.package import Package, Port
from ingot.runtime.results import Results
from ingot.strings import StringTable
from ingot.support.errors import IngotError

if TYPE_CHECKING:
    from ingot.runtime.executable import Executable

STRING = "str"  # the element type's name


class OtherVersion(Exception):
    """The sizes of a call need another compilation of the model (versions.py)."""

    def __init__(self, version: Executable):
        self.version = version


def needs_border(package: Package) -> bool:
    return bool(package.strings or package.host_steps)


class Border:
    """What is the same for all calls: the model's strings and the ports that hold strings."""

    def __init__(self, package: Package, results: Results):
        self._table = StringTable(texts=package.strings[1:])
        self._results, self._host_steps = results, package.host_steps
        self._inputs, self._outputs = package.inputs, package.outputs

    def run(
        self,
        run: Callable[..., list[Array]],
        given: Sequence[Any],
        out: Any,
        threads: int | None,
        state: Any,
    ) -> list[Array]:
        """One call: strings in, numbers through the code, strings out."""
        table = StringTable(self._table)
        arrays = [
            encode(value, port, table) if port.dtype == STRING else value
            for value, port in zip(given, self._inputs)
        ]
        wanted = {} if out is None else self._results.given(out)
        plain, texts = self._separate(wanted)
        with calling(HostCall(self._host_steps, table)):
            outputs = run(arrays, plain if wanted else None, threads, state)
        return [
            _decoded(array, port, table, texts.get(i)) if port.dtype == STRING else array
            for i, (array, port) in enumerate(zip(outputs, self._outputs))
        ]

    def _separate(self, wanted: dict[int, Any]) -> tuple[dict[str, Any], dict[int, np.ndarray]]:
        """The caller's arrays for the outputs: by name those that the code writes, by position
        those of strings."""
        plain: dict[str, Any] = {}
        texts: dict[int, np.ndarray] = {}
        for position, array in wanted.items():
            port = self._outputs[position]
            if port.dtype != STRING:
                plain[port.name] = array
                continue
            is_fit = isinstance(array, np.ndarray) and array.dtype == object
            if not is_fit or not array.flags.writeable:
                what = f"out= array for {port.name!r} is not a writeable object array"
                raise IngotError("bad-input", what, hint="np.empty(shape, object) fits")
            texts[position] = array
        return plain, texts


def encode(value: Any, port: Port, table: StringTable) -> np.ndarray:
    """The caller's strings as numbers: an array of str, bytes or objects, a list, or one string."""
    if isinstance(value, np.ma.MaskedArray):
        what, hint = f"input {port.name!r} is a masked array", f"pass {port.name}.filled(...)"
        raise IngotError("bad-input", what, hint=hint)
    try:
        if isinstance(value, str | bytes | list | tuple):
            array = np.array(value, object)
        elif isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):
            array = np.asarray(value)
        else:
            raise TypeError(f"it is a {type(value).__name__}")
        if array.dtype.kind not in "OUST":
            raise TypeError(f"its dtype is {array.dtype}")
        return table.encode(array)
    except (TypeError, ValueError) as error:
        raise IngotError(
            "bad-input",
            f"input {port.name!r} is not an array of strings",
            why=str(error),
            hint=f"pass np.array({port.name}, object), whose elements are str",
        ) from error


def _decoded(
    numbers: np.ndarray, port: Port, table: StringTable, out: np.ndarray | None
) -> np.ndarray:
    """The strings of an output, in the caller's array if there is one."""
    texts = table.decode(numbers)
    if out is None:
        return texts
    if out.shape != texts.shape:
        what = f"out= array for {port.name!r} has shape {list(out.shape)}, not {list(texts.shape)}"
        raise IngotError("bad-input", what, hint=f"np.empty({texts.shape}, object) fits")
    out[...] = texts
    return out

"""What a call needs beyond plain arrays: strings, maps, and the steps that Python does in it.

In: what the caller gives and, after the run, what the compiled code made. Out: numbers into a table
of strings for the code, object arrays of str for the caller; of a dict its keys and values, and of
the rows of a matrix a list of dicts. Used by executable.py, only for models
that have strings or host steps. Each call has a table of its own on top of the model's, so that
calls of several threads do not meet, and it is freed after the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ingot import dtypes
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
    has_maps = package.map_inputs or package.map_outputs
    return bool(package.strings or package.host_steps or has_maps)


def shown_inputs(package: Package) -> tuple[Port, ...]:
    """The inputs as a caller gives them: a map is one."""
    maps = {f"{name}.keys": name for name in package.map_inputs}
    hidden = {f"{name}.values" for name in package.map_inputs}
    types = {port.name: port.dtype for port in package.inputs}
    return tuple(
        replace(port, name=maps[port.name], dtype=f"map({port.dtype}, {types[_values(port)]})")
        if port.name in maps
        else port
        for port in package.inputs
        if port.name not in hidden
    )


def _values(keys: Port) -> str:
    return keys.name.removesuffix(".keys") + ".values"


class Border:
    """What is the same for all calls: the model's strings and the ports that hold strings."""

    def __init__(self, package: Package, results: Results):
        self._table = StringTable(texts=package.strings[1:])
        self._results, self._host_steps = results, package.host_steps
        self._inputs, self._outputs = package.inputs, package.outputs
        self._shown, self._labels = shown_inputs(package), dict(package.map_outputs)

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
        values = [v for value, port in zip(given, self._shown) for v in _parts(value, port)]
        arrays = [
            encode(value, port, table) if port.dtype == STRING else value
            for value, port in zip(values, self._inputs)
        ]
        wanted = {} if out is None else self._results.given(out)
        plain, texts = self._separate(wanted)
        with calling(HostCall(self._host_steps, table)):
            outputs = run(arrays, plain if wanted else None, threads, state)
        return [
            self._result(array, port, table, texts.get(i))
            for i, (array, port) in enumerate(zip(outputs, self._outputs))
        ]

    def _result(
        self, array: np.ndarray, port: Port, table: StringTable, out: np.ndarray | None
    ) -> Any:
        labels = self._labels.get(port.name)
        if labels is not None:
            return [dict(zip(labels, row)) for row in np.atleast_2d(array).tolist()]
        return _decoded(array, port, table, out) if port.dtype == STRING else array

    def _separate(self, wanted: dict[int, Any]) -> tuple[dict[str, Any], dict[int, np.ndarray]]:
        """The caller's arrays for the outputs: by name those that the code writes, by position
        those of strings."""
        plain: dict[str, Any] = {}
        texts: dict[int, np.ndarray] = {}
        for position, array in wanted.items():
            port = self._outputs[position]
            if port.name in self._labels:
                what = f"out= cannot hold output {port.name!r}, which is a list of dicts"
                raise IngotError("bad-input", what, hint="omit it from out=")
            if port.dtype != STRING:
                plain[port.name] = array
                continue
            is_fit = isinstance(array, np.ndarray) and array.dtype == object
            if not is_fit or not array.flags.writeable:
                what = f"out= array for {port.name!r} is not a writeable object array"
                raise IngotError("bad-input", what, hint="np.empty(shape, object) fits")
            texts[position] = array
        return plain, texts


def _parts(value: Any, port: Port) -> list[Any]:
    """The arrays of an input: of a map its keys, ascending, and its values."""
    if not port.dtype.startswith("map("):
        return [value]
    if not isinstance(value, Mapping):
        what = f"input {port.name!r} is a {type(value).__name__}, not a dict"
        raise IngotError("bad-input", what)
    try:
        keys = sorted(value)
    except TypeError as error:
        why = str(error)
        raise IngotError(
            "bad-input", f"input {port.name!r} has keys of two types", why=why
        ) from error
    kind = port.dtype.removeprefix("map(").removesuffix(")").split(", ")
    made = zip((keys, [value[key] for key in keys]), kind)
    try:
        return [x if dtype == STRING else np.array(x, dtypes.of(dtype).numpy) for x, dtype in made]
    except (TypeError, ValueError, OverflowError) as error:
        what = f"input {port.name!r} is not a {port.dtype}"
        raise IngotError("bad-input", what, why=str(error)) from error


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

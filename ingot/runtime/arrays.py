"""The caller's arrays → numpy arrays that emitted code can read, or errors that name the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import addressof, c_char
from typing import Any

import numpy as np

from ingot.runtime import devices
from ingot.runtime.package import HOST, Port
from ingot.runtime.tensors import is_tensor
from ingot.support import lazy
from ingot.support.errors import IngotError

_first_byte = c_char.from_buffer


def address_of(array: np.ndarray) -> int:
    """The first element's address. The buffer protocol is several times faster than numpy's array
    interface, but fails for arrays that are read-only, empty, or of a type that it lacks."""
    try:
        return addressof(_first_byte(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        return array.__array_interface__["data"][0]


def as_array(value: Any, port: Port, dtype: np.dtype, is_state: bool) -> Any:
    """`value` as a C-contiguous, aligned array of the port's type, on the port's device; without a
    copy if possible."""
    is_on_host = port.device == HOST
    if is_on_host:
        array = _adopt(value, port, dtype)
    else:
        array = devices.find(port.device).from_dlpack(value, f"input {port.name!r}")
    if array.dtype != dtype:
        raise IngotError(
            "bad-input",
            f"input {port.name!r} has dtype {_dtype_name(array.dtype)}, expected {dtype}",
            hint=f"pass {port.name}.astype({str(dtype)!r})"
            if hasattr(value, "astype")
            else f"pass {port.name}.to(torch.{dtype})",
        )
    if not is_on_host:
        return array
    if is_state:
        return _state_array(array, port)
    usable = array.flags.c_contiguous and array.flags.aligned
    return array if usable else np.array(array, order="C")


def _dtype_name(dtype: np.dtype) -> str:
    return f"{dtype} (big-endian)" if dtype.str.startswith(">") else str(dtype)


def _adopt(value: Any, port: Port, dtype: np.dtype) -> np.ndarray:
    if isinstance(value, np.ma.MaskedArray):
        raise IngotError(
            "bad-input",
            f"input {port.name!r} is a masked array",
            why="the model would read the masked elements",
            hint=f"pass {port.name}.filled(...)",
        )
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        return from_dlpack(value, f"input {port.name!r}")
    if isinstance(value, int | float | bool | list | tuple | np.generic):
        return _convert(value, port, dtype)
    hint = "pass a numpy array, or anything with __dlpack__"
    if isinstance(value, Mapping):
        hint = "inputs by name are exe(**feeds) or exe.run(None, feeds)"
    raise IngotError("bad-input", f"input {port.name!r} is a {type(value).__name__}", hint=hint)


def from_dlpack(value: Any, where: str) -> np.ndarray:
    """Another library's CPU tensor, as an array over the same memory. Torch's do not go through
    DLPack, for which numpy lacks bf16, and which has no negative bit."""
    if is_tensor(value):
        return lazy.load("torch.tensors").shared(value, where)
    try:
        return np.from_dlpack(value)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise IngotError(
            "bad-input",
            f"{where} ({type(value).__name__}) cannot be shared through DLPack",
            why=str(error),
            hint="pass a numpy array, or a dense CPU tensor of an element type that numpy has",
        ) from error


def _convert(value: Any, port: Port, dtype: np.dtype) -> np.ndarray:
    """Python numbers and lists, converted to the declared type if that loses nothing."""
    if isinstance(value, np.generic):
        return np.asarray(value)
    try:
        given = np.asarray(value)
        array = given.astype(dtype, casting="same_kind" if given.size else "unsafe")
        if given.dtype.kind in "iu" and not np.array_equal(array.astype(given.dtype), given):
            raise OverflowError(f"a number does not fit {dtype}")
    except (TypeError, ValueError, OverflowError) as error:
        raise IngotError(
            "bad-input",
            f"input {port.name!r} cannot be converted to a {dtype} array",
            why=str(error),
        ) from error
    return array


def _state_array(array: np.ndarray, port: Port) -> np.ndarray:
    if array.flags.carray:
        return array
    wrong = "read-only" if not array.flags.writeable else "not C-contiguous and aligned"
    raise IngotError(
        "bad-input",
        f"state {port.name!r} is {wrong}, so it cannot be updated in place",
        hint="pass np.ascontiguousarray(...) and keep that array as the state",
    )


def may_share_memory(a: Any, b: Any) -> bool:
    """Arrays of devices are compared by identity alone: what they share, only the device knows."""
    is_numpy = isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
    return np.may_share_memory(a, b) if is_numpy else a is b


def refuse_shared_state(
    ports: Sequence[Port], arrays: Sequence[np.ndarray], is_state: Sequence[bool]
) -> None:
    """Aliasing check: a state is written while inputs are read, so they must not overlap."""
    for i, state in enumerate(arrays):
        for j, other in enumerate(arrays if is_state[i] else ()):
            if i != j and may_share_memory(state, other):
                raise IngotError(
                    "bad-input",
                    f"state {ports[i].name!r} shares memory with input {ports[j].name!r}",
                    why="a state is updated in place during the run",
                    hint="pass a copy of one of them",
                )


def refuse_state_as_input(
    ports: Sequence[Port], arrays: Sequence[Any], is_state: Sequence[bool], memory: np.ndarray
) -> None:
    """Aliasing check of a call with a State, whose arrays are all in one block of memory."""
    for port, array, is_kept in zip(ports, arrays, is_state):
        if not is_kept and may_share_memory(array, memory):
            raise IngotError(
                "bad-input",
                f"input {port.name!r} shares memory with the state",
                why="a state is updated in place during the run",
                hint="pass a copy: state[name].copy()",
            )

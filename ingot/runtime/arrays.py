"""The caller's arrays: turned into numpy arrays the emitted code can use, or refused by name."""

from __future__ import annotations

from ctypes import addressof, c_char
from typing import Any

import numpy as np

from ingot.runtime.package import Port
from ingot.support.errors import IngotError

_first_byte = c_char.from_buffer


def address_of(array: np.ndarray) -> int:
    """The first element's address. The buffer protocol answers several times faster than numpy's
    own interface, but only for writeable arrays of numpy's own types that are not empty."""
    if array.flags.writeable and array.nbytes and array.dtype.kind != "V":
        return addressof(_first_byte(array))  # type: ignore[arg-type]
    return array.__array_interface__["data"][0]


def as_array(value: Any, port: Port, dtype: np.dtype, is_state: bool) -> np.ndarray:
    """`value` as a C-contiguous, aligned array of the port's type: itself where it can be."""
    array = _adopt(value, port, dtype)
    if array.dtype != dtype:
        raise IngotError(
            "bad-input",
            f"input {port.name!r} has dtype {array.dtype}, expected {dtype}",
            hint=f"pass {port.name}.astype({str(dtype)!r})",
        )
    if is_state:
        return _state_array(array, port)
    return array if array.flags.carray or _is_readable(array) else np.array(array, order="C")


def _is_readable(array: np.ndarray) -> bool:
    """A read-only array will do for an input."""
    return bool(array.flags.c_contiguous and array.flags.aligned)


def _adopt(value: Any, port: Port, dtype: np.dtype) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        if getattr(value, "requires_grad", False):
            value = value.detach()
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError) as error:
            raise IngotError(
                "bad-input",
                f"input {port.name!r} cannot be shared through DLPack",
                why=str(error),
                hint="pass a CPU tensor or a numpy array",
            ) from error
    if isinstance(value, int | float | bool | list | tuple | np.generic):
        return _convert(value, port, dtype)
    raise IngotError(
        "bad-input",
        f"input {port.name!r} is a {type(value).__name__}",
        hint="pass a numpy array, or anything with __dlpack__",
    )


def _convert(value: Any, port: Port, dtype: np.dtype) -> np.ndarray:
    """Python numbers and lists take the declared type, if it can hold them."""
    if isinstance(value, np.generic):
        return np.asarray(value)
    try:
        given = np.asarray(value)
        array = given.astype(dtype, casting="same_kind" if given.size else "unsafe")
        if given.dtype.kind in "iu" and not np.array_equal(array.astype(given.dtype), given):
            raise OverflowError(f"a number does not fit {dtype}")
    except (TypeError, ValueError, OverflowError) as error:
        raise IngotError(
            "bad-input", f"input {port.name!r} cannot be made a {dtype} array", why=str(error)
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


def check_out(
    value: Any, port: Port, shape: tuple[int, ...] | None, dtype: np.dtype, inputs: list[np.ndarray]
) -> np.ndarray:
    """The caller's own output array, if it fits."""
    if shape is None or port.place.kind != "slot":
        raise IngotError(
            "bad-input",
            f"output {port.name!r} cannot be given by out=",
            why="its size is known only after the run",
        )
    if not isinstance(value, np.ndarray):
        value = np.from_dlpack(value)
    wrong = _misfit(value, shape, dtype)
    if wrong:
        raise IngotError("bad-input", f"out= array for {port.name!r} {wrong}")
    if any(np.may_share_memory(value, array) for array in inputs):
        raise IngotError(
            "bad-input",
            f"out= array for {port.name!r} shares memory with an input",
            hint="to update an input in place, compile with state={input: output}",
        )
    return value


def _misfit(value: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> str:
    if value.dtype != dtype:
        return f"has dtype {value.dtype}, expected {dtype}"
    if value.shape != shape:
        return f"has shape {list(value.shape)}, expected {list(shape)}"
    if not value.flags.carray:
        return "is read-only, not C-contiguous or not aligned"
    return ""

"""The short way into a model: one builtin function, native from the caller's arrays to the list.

Most calls are as the one before: the same sizes, plain numpy arrays, new arrays for the outputs.
Python code for these takes longer than a small model itself, the more so when the model has just
emptied the nearest caches. The function is native code (codegen/llvm_door.py), made known to Python
as a builtin; whatever it does not know it refuses by returning None. Used by executable.py.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from ingot.runtime.context import Context
from ingot.runtime.pool import Pool
from ingot.runtime.services import Services
from ingot.runtime.sizes import Shape
from ingot.support.abi import ARRAY, ARRAY_IS_PLAIN, DOOR, DOOR_PORT, DOOR_PORT_BYTES

_TAKES_A_VECTOR = 0x80  # METH_FASTCALL
_FUNCTIONS = {
    "call": "PyObject_Call",
    "new_list": "PyList_New",
    "set_item": "PyList_SetItem",
    "incref": "Py_IncRef",
    "decref": "Py_DecRef",
    "save": "PyEval_SaveThread",
    "restore": "PyEval_RestoreThread",
    "number": "PyLong_FromLong",
}
_make = np.empty
_forks = ctypes.c_int64(0)  # of this process' line: what a parent has made ready is not ready here


class _Method(ctypes.Structure):
    """How Python wants a builtin function described."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


class Door:
    """A context that is ready for one tuple of sizes, and the function that runs it. The caller
    keeps to one call at a time, and keeps the door while it lasts."""

    def __init__(
        self, services: Services, crew: Pool, context: Context,
        inputs: Sequence[tuple[int, np.dtype, Shape]],
        outputs: Sequence[tuple[int, np.dtype, Shape]],
    ):  # fmt: skip
        """Of each input and output: slot, element type, shape."""
        self.context = context
        made = [(slot, (shape, dtype), shape) for slot, dtype, shape in outputs]
        self._kept = [what for _, what, _ in (*inputs, *made)]  # the record holds bare addresses
        self._record = _record(context, [*inputs, *made], len(inputs))
        facts = {"gang": context.gang, "limit": crew.limit, "born": _forks.value}
        for name, value in {**_python(), **facts}.items():
            self._record[DOOR[name] // 8] = value
        self.call: Callable[..., Any] = _new_builtin()(
            ctypes.addressof(_method(services.door)), self._record, None
        )


def _record(context: Context, ports: Sequence[tuple[int, Any, Shape]], inputs: int) -> np.ndarray:
    """The words of a door with its ports filled in, all their sizes behind them."""
    sizes = [n for _, _, shape in ports for n in shape]
    first = DOOR["ports"] + DOOR_PORT_BYTES * len(ports)
    record = np.zeros(first // 8 + len(sizes), np.int64)
    record[first // 8 :] = sizes
    record[DOOR["inputs"] // 8], record[DOOR["outputs"] // 8] = inputs, len(ports) - inputs
    place = record.ctypes.data + first
    for i, (slot, what, shape) in enumerate(ports):
        at = (DOOR["ports"] + i * DOOR_PORT_BYTES) // 8
        facts = {"what": id(what), "place": context.place(slot), "rank": len(shape), "shape": place}
        for name, value in facts.items():
            record[at + DOOR_PORT[name] // 8] = value
        place += 8 * len(shape)
    return record


@cache
def _method(address: int) -> _Method:
    """Kept for good: Python looks into it for as long as anybody has a builtin that it describes,
    and a profiler may have one after its door is gone."""
    return _Method(b"door", address, _TAKES_A_VECTOR, None)


@cache
def can_be_made() -> bool:
    """Is this the Python, and are these the arrays, that the native code knows?"""
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    if sys.implementation.name != "cpython" or not has_lock:
        return False
    sample = np.zeros((3, 5), np.float32)
    found = {name: _word(sample, name) for name in ("type", "data", "shape", "dtype")}
    expected = {"type": id(np.ndarray), "data": sample.ctypes.data, "dtype": id(sample.dtype)}
    if any(found[name] != value for name, value in expected.items()):
        return False
    small = {name: _word(sample, name, ctypes.c_int32) for name in ("rank", "flags")}
    if small != {"rank": 2, "flags": sample.flags.num}:
        return False
    is_plain = small["flags"] & ARRAY_IS_PLAIN == ARRAY_IS_PLAIN
    return is_plain and tuple((ctypes.c_int64 * 2).from_address(found["shape"])) == (3, 5)


def _word(array: np.ndarray, name: str, kind: Any = ctypes.c_int64) -> int:
    return kind.from_address(id(array) + ARRAY[name]).value


@cache
def _python() -> dict[str, int]:
    """The addresses of what is Python's."""
    functions = {
        name: ctypes.cast(getattr(ctypes.pythonapi, spelled), ctypes.c_void_p).value
        for name, spelled in _FUNCTIONS.items()
    }
    objects = {"array_type": id(np.ndarray), "none": id(None), "make": id(_make)}
    return {"forks": ctypes.addressof(_forks), **objects, **functions}  # type: ignore[dict-item]


@cache
def _new_builtin() -> Any:
    function = ctypes.PyDLL(None).PyCFunction_NewEx  # a handle of our own, to give it types
    function.restype = ctypes.py_object
    function.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
    return function


def _count_fork() -> None:
    _forks.value += 1


os.register_at_fork(after_in_child=_count_fork)

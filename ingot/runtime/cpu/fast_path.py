"""The native fast path of a call: one builtin function, from the input arrays to the output list.

Most calls are like the one before: the same shapes, plain numpy arrays, new output arrays. Python
code for such a call takes longer than a small model, even more so when the model has just evicted
that code from L1 and L2. The fast path is native code (native/fast_path.py), wrapped as a Python
builtin. It returns None for any call that it cannot handle. Used by loaded.py.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from ingot.runtime.cpu.context import Context
from ingot.runtime.cpu.pool import Pool
from ingot.runtime.sizes import Shape
from ingot.support.abi import ARRAY, ARRAY_IS_PLAIN, FAST_PATH, FAST_PATH_PORT, FAST_PATH_PORT_BYTES

_METH_FASTCALL = 0x80  # CPython's flag: arguments are passed as a vector
_FUNCTIONS = {  # functions of CPython's C API, by their names in abi.FAST_PATH
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
_forks = ctypes.c_int64(0)  # since the first process: a parent's fast path is invalid in a child


class _Method(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


class FastPath:
    """A context prepared for one tuple of shapes, and the builtin `call` that runs it. Only one
    thread may call it at a time, and the object must outlive the call."""

    def __init__(
        self, workers: Pool, context: Context,
        inputs: Sequence[tuple[int, np.dtype, Shape]],
        outputs: Sequence[tuple[int, np.dtype, Shape]],
    ):  # fmt: skip
        """`inputs` and `outputs`: (slot, element type, shape)."""
        self.context = context
        made = [(slot, (shape, dtype), shape) for slot, dtype, shape in outputs]
        # the record holds bare addresses of these: keep them alive
        self._referenced = [what for _, what, _ in (*inputs, *made)]
        self._record = _record(context, [*inputs, *made], len(inputs))
        own = {"pool_run": context.pool_run, "limit": workers.limit, "born": _forks.value}
        for name, value in {**_python_addresses(), **own}.items():
            self._record[FAST_PATH[name] // 8] = value
        self.call: Callable[..., Any] = _new_builtin()(
            ctypes.addressof(_method(context.code.services.fast_path)), self._record, None
        )


def _record(context: Context, ports: Sequence[tuple[int, Any, Shape]], inputs: int) -> np.ndarray:
    """A FAST_PATH record with its ports filled in; the sizes of all ports follow them."""
    sizes = [n for _, _, shape in ports for n in shape]
    first = FAST_PATH["ports"] + FAST_PATH_PORT_BYTES * len(ports)
    record = np.zeros(first // 8 + len(sizes), np.int64)
    record[first // 8 :] = sizes
    record[FAST_PATH["inputs"] // 8] = inputs
    record[FAST_PATH["outputs"] // 8] = len(ports) - inputs
    shape_at = record.ctypes.data + first
    for i, (slot, what, shape) in enumerate(ports):
        at = (FAST_PATH["ports"] + i * FAST_PATH_PORT_BYTES) // 8
        fields = {"what": id(what), "place": context.slot_address(slot),
                  "rank": len(shape), "shape": shape_at}  # fmt: skip
        for name, value in fields.items():
            record[at + FAST_PATH_PORT[name] // 8] = value
        shape_at += 8 * len(shape)
    return record


@cache
def _method(address: int) -> _Method:
    """Never freed: CPython reads it as long as a builtin refers to it, and a profiler may hold the
    builtin after the fast path is gone."""
    return _Method(b"fast_path", address, _METH_FASTCALL, None)


@cache
def is_supported() -> bool:
    """Is this CPython with the GIL, and do numpy arrays have the layout that abi.ARRAY states?"""
    has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    if sys.implementation.name != "cpython" or not has_gil:
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
def _python_addresses() -> dict[str, int]:
    """The addresses of CPython's functions and objects in a FAST_PATH record."""
    functions = {
        name: ctypes.cast(getattr(ctypes.pythonapi, symbol), ctypes.c_void_p).value
        for name, symbol in _FUNCTIONS.items()
    }
    objects = {"array_type": id(np.ndarray), "none": id(None), "make": id(_make)}
    return {"forks": ctypes.addressof(_forks), **objects, **functions}  # type: ignore[dict-item]


@cache
def _new_builtin() -> Any:
    function = ctypes.PyDLL(None).PyCFunction_NewEx  # a private handle, since it gets argtypes
    function.restype = ctypes.py_object
    function.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
    return function


def _count_fork() -> None:
    _forks.value += 1


os.register_at_fork(after_in_child=_count_fork)

"""Host steps of one call: emitted code calls back into Python. In: the number of a step and a table
of its buffers. Out: its results, written into the buffers.

Thread 0 of a call is the thread that made it, so that the state of the call (its strings, results
kept between the two parts of a step) is the calling thread's own. The service takes the GIL while a
step runs. What a step raises becomes the run's error. Used by border.py, cpu/services.py and the
program interpreter.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.runtime.host_steps import STEPS
from ingot.runtime.package import HostStep
from ingot.strings import StringTable
from ingot.support.errors import IngotError

_thread = threading.local()  # `call`: the HostCall that this thread makes now


class HostCall:
    """The state of one call. `table`: its strings."""

    def __init__(self, steps: Sequence[HostStep], table: StringTable):
        self._steps, self._table = steps, table
        self._kept: dict[str, list[np.ndarray]] = {}
        self.error: BaseException | None = None

    def run(self, number: int, words: Any) -> None:
        """A step on the memory of emitted code: `words` has addresses and sizes."""
        step = self._steps[number]
        at = 0
        arrays: list[np.ndarray | None] = []
        for type in (*step.inputs, *step.outputs):
            if type is None:
                arrays.append(None)
                continue
            dtype, rank = type
            shape = tuple(words[at + 1 : at + 1 + rank])
            arrays.append(_array_at(words[at], dtypes.of(dtype).numpy, shape))
            at += 1 + rank
        count = len(step.inputs)
        results: list[Any] = arrays[count:]
        self.do(
            step.name, dict(step.attrs), arrays[:count], results, step.keeps, step.takes, step.sizes
        )

    def do(
        self,
        name: str,
        attrs: Mapping[str, Any],
        inputs: Sequence[np.ndarray | None],
        results: Sequence[np.ndarray],
        keeps: str,
        takes: str,
        sizes: Sequence[tuple[int, int]],
    ) -> None:
        """One statement of the program: see HostStep in package.py."""
        made = self._kept.pop(takes) if takes else evaluate(name, inputs, attrs, self._table)
        if keeps:
            self._kept[keeps] = made
            results[0][...] = [made[result].shape[axis] for result, axis in sizes]
            return
        for array, value in zip(results, made, strict=True):
            if array.shape != value.shape:
                what = f"the step gave shape {list(value.shape)}, not {list(array.shape)}"
                raise IngotError("run-failed", what)
            array[...] = value


def evaluate(
    name: str, inputs: Sequence[np.ndarray | None], attrs: Mapping[str, Any], table: StringTable
) -> list[np.ndarray]:
    """The results of a step: strings are numbers of the table on both sides."""
    if name not in STEPS:
        raise IngotError("run-failed", f"there is no host step {name!r}")
    given = [
        table.decode(x) if x is not None and x.dtype == dtypes.str_.numpy else x for x in inputs
    ]
    try:
        made = STEPS[name](given, attrs)
    except IngotError:
        raise
    except Exception as error:
        raise IngotError("run-failed", f"{name}: {error}") from error
    return [table.encode(x) if x.dtype == object else x for x in made]


@contextmanager
def calling(call: HostCall) -> Iterator[None]:
    """Steps that this thread is asked for are the call's."""
    before = getattr(_thread, "call", None)
    _thread.call = call
    try:
        yield
    finally:
        _thread.call = before


def take_error(name: str) -> IngotError:
    """What a step of this thread's call raised. An interrupt of the user is raised again."""
    call = getattr(_thread, "call", None)
    error = None if call is None else call.error
    if isinstance(error, IngotError):
        return error
    if isinstance(error, BaseException):
        raise error
    return IngotError("run-failed", f"the host step {name!r} is not available here")


@ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64))
def host_service(number: int, words: Any) -> int:
    """The service `host` of support/abi.py."""
    call = getattr(_thread, "call", None)
    if call is None:
        return 1
    try:
        call.run(number, words)
    except BaseException as error:  # ctypes would only print it
        call.error = error
        return 1
    return 0


def _array_at(address: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    if not size:
        return np.empty(shape, dtype)
    memory = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(memoryview(memory), np.uint8).view(dtype).reshape(shape)

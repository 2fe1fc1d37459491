"""The interpreter's memory: flat arrays with shapes, poison values, boxes, pending async copies.

In and out: numpy arrays. Called by `interp` only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ingot.dtypes import DType
from ingot.loops import ir
from ingot.support.errors import IngotError

POISON = 0x5A  # each byte of an uninitialised integer


@dataclass(slots=True)
class FlatArray:
    """A buffer: its elements in row-major order, and its shape."""

    flat: np.ndarray
    shape: tuple[int, ...]


Box = tuple[FlatArray, tuple[slice, ...]]


def poisoned(dtype: DType, shape: tuple[int, ...]) -> FlatArray:
    """Uninitialised memory: NaN, or for integers a pattern that is unlikely as a result."""
    count = math.prod(shape)
    if dtype.is_float:
        return FlatArray(np.full(count, np.nan).astype(dtype.numpy), shape)
    if dtype.is_bool or dtype.bits < 8:
        return FlatArray(np.ones(count, dtype.numpy), shape)
    return FlatArray(
        np.full(count * dtype.storage_bytes, POISON, np.uint8).view(dtype.numpy), shape
    )


def read_box(memory: FlatArray, ranges: tuple[slice, ...]) -> np.ndarray:
    return memory.flat.reshape(memory.shape)[ranges].copy()


def write_box(memory: FlatArray, ranges: tuple[slice, ...], values: np.ndarray) -> None:
    target = memory.flat.reshape(memory.shape)[ranges]
    target[...] = values.reshape(target.shape)


class RunState:
    """The state of one run: the kernel's name for errors, and the pending asynchronous copies.

    A destination is poisoned when its copy starts and written when its token is waited for, so that
    a kernel that forgets to wait reads poison.
    """

    def __init__(self, kernel: ir.Kernel):
        self.where = kernel.origin or kernel.name
        self.copies: dict[str, list[tuple[Box, np.ndarray]]] = {}

    def start(self, token: str, dst: Box, src: Box) -> None:
        values = read_box(*src)
        memory, ranges = dst
        kind = ir.dtypes.from_numpy(values.dtype)
        write_box(memory, ranges, poisoned(kind, values.shape).flat)
        self.copies.setdefault(token, []).append((dst, values))

    def wait(self, token: str) -> None:
        for dst, values in self.copies.pop(token, []):
            write_box(*dst, values)

    def finish(self) -> None:
        if self.copies:
            token = next(iter(self.copies))
            what = f"the copy {token!r} was started and never waited for"
            raise IngotError("run-failed", what, where=self.where)


def out_of_range(
    name: str, point: tuple[int, ...], shape: tuple[int, ...], where: str
) -> IngotError:
    what = f"{name}[{', '.join(map(str, point))}] is out of range: its shape is {shape}"
    return IngotError("run-failed", what, where=where)

"""The interpreter's memory: flat arrays with shapes, poison, boxes and copies under way.

In and out: numpy arrays. Called by `interp` only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ingot.dtypes import DType
from ingot.loops import ir
from ingot.support.errors import IngotError

POISON = 0x5A  # every byte of an integer that nobody has stored


@dataclass(slots=True)
class Memory:
    """A buffer: its elements in row-major order, and its shape."""

    flat: np.ndarray
    shape: tuple[int, ...]


Box = tuple[Memory, tuple[slice, ...]]


def poisoned(dtype: DType, shape: tuple[int, ...]) -> Memory:
    """Memory nobody has stored to: NaN, or a pattern that is no likely result."""
    count = math.prod(shape)
    if dtype.is_float:
        return Memory(np.full(count, np.nan).astype(dtype.numpy), shape)
    if dtype.is_bool or dtype.bits < 8:
        return Memory(np.ones(count, dtype.numpy), shape)
    return Memory(np.full(count * dtype.storage_bytes, POISON, np.uint8).view(dtype.numpy), shape)


def read_box(memory: Memory, ranges: tuple[slice, ...]) -> np.ndarray:
    return memory.flat.reshape(memory.shape)[ranges].copy()


def write_box(memory: Memory, ranges: tuple[slice, ...], values: np.ndarray) -> None:
    target = memory.flat.reshape(memory.shape)[ranges]
    target[...] = values.reshape(target.shape)


class Pending:
    """What belongs to one run: its kernel, and the copies started and not yet waited for.

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

"""A package on the C device: fills `struct ingot_call` and calls `ingot_run`.

In: sizes and arrays. Out: output arrays. Each call takes its own context from a free list. Made by
device.py, called by executable.py. The structures are those of codegen/c_head.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.runtime.arrays import address_of
from ingot.runtime.c import compiler
from ingot.runtime.c.module import CModule, read
from ingot.runtime.contexts import Contexts
from ingot.runtime.failure import closed, run_error
from ingot.runtime.package import Package, Port
from ingot.runtime.profile import Counters
from ingot.runtime.sizes import Sizes
from ingot.runtime.trace import Events
from ingot.support.errors import IngotError

_pointer, _i64 = ctypes.c_void_p, ctypes.c_int64
_libc = ctypes.CDLL(None)
_realloc = ctypes.cast(_libc.realloc, _pointer)
_libc.free.argtypes = [_pointer]


class _Error(ctypes.Structure):
    _fields_ = [("launch", _i64), ("reason", _i64), ("values", _i64 * 2),
                ("where", _pointer), ("why", _pointer)]  # fmt: skip


class _Block(ctypes.Structure):
    _fields_ = [("data", _pointer), ("rows", _i64), ("capacity", _i64)]


class _Call(ctypes.Structure):
    _fields_ = [("buffers", _pointer), ("sizes", _pointer), ("arena", _pointer),
                ("weights", _pointer), ("blocks", _pointer), ("resize", _pointer),
                ("error", _Error)]  # fmt: skip


class _Context:
    """The memory of one call at a time."""

    def __init__(self, package: Package, module: CModule):
        self.buffers = (_pointer * (1 + max((*module.inputs, *module.outputs), default=0)))()
        self.sizes = (_i64 * max(1, len(package.symbols)))()
        self.blocks = (_Block * max(1, module.block_count))()
        self.arena = np.empty(0, np.uint8)
        tables = (ctypes.addressof(self.buffers), ctypes.addressof(self.sizes))
        weights, blocks = package.constants.ctypes.data, ctypes.addressof(self.blocks)
        self.call = _Call(*tables, None, weights, blocks, _realloc)

    def __del__(self) -> None:
        for block in self.blocks:
            _libc.free(block.data)


class LoadedCModule:
    """See runtime/device.py, LoadedModule."""

    has_counters = False

    def __init__(self, package: Package):
        self.threads = 1
        self._package, self._module = package, read(package)
        self._library: ctypes.CDLL | None = compiler.load(self._module.text, package.name)
        self._run, self._arena_bytes = self._library.ingot_run, self._library.ingot_arena_bytes
        self._run.argtypes, self._run.restype = [_pointer], ctypes.c_int32
        self._arena_bytes.argtypes, self._arena_bytes.restype = [_pointer], _i64
        self._numbers = (*self._module.inputs, *self._module.outputs)
        self._contexts = Contexts[_Context]()

    def context(self) -> LoadedCModule:
        own = object.__new__(LoadedCModule)
        own.__dict__.update(self.__dict__, _contexts=Contexts())
        return own

    def close(self) -> None:
        self._library = None  # `run` is an error from here on
        self._contexts.wait(self._contexts.take_idle)

    def trim(self) -> int:
        return sum(context.arena.nbytes for context in self._contexts.take_idle())

    def repeat(self, inputs: Sequence[Any]) -> None:
        """There is no faster path."""

    def run(
        self,
        sizes: Sizes,
        inputs: Sequence[np.ndarray],
        outputs: list[np.ndarray | None],
        threads: int | None,
        is_plain: bool,
    ) -> list[np.ndarray]:
        context = self._context()
        try:
            if self._library is None:
                raise closed()
            self._prepare(context, sizes)
            for number, array in zip(self._numbers, (*inputs, *outputs)):
                if array is not None:
                    context.buffers[number] = address_of(array)
            if self._run(ctypes.addressof(context.call)):
                error = context.call.error
                record = (error.launch, error.reason, error.values[0], error.values[1])
                raise run_error(self._package, [record])
            finished = self._finish(context, outputs)
        except IngotError:
            self._contexts.idle.append(context)
            raise
        except BaseException:
            self._contexts.forget(context)
            raise
        self._contexts.idle.append(context)
        return finished

    def _context(self) -> _Context:
        try:
            return self._contexts.idle.pop()
        except IndexError:
            return self._contexts.add(_Context(self._package, self._module))

    def _prepare(self, context: _Context, sizes: Sizes) -> None:
        context.sizes[: len(sizes.symbols)] = list(sizes.symbols)
        need = self._arena_bytes(ctypes.addressof(context.sizes))
        if need < 0:
            raise MemoryError("the size of the arena overflows")
        if need > context.arena.nbytes:
            context.arena = np.empty(need, np.uint8)
        context.call.arena = context.arena.ctypes.data

    def _finish(self, context: _Context, outputs: list[np.ndarray | None]) -> list[np.ndarray]:
        """Copy out the outputs whose sizes became known in the run."""
        known = dict(zip((s.name for s in self._package.symbols), context.sizes))
        rows = zip(outputs, self._package.outputs, self._module.outputs)
        return [
            _copy_out(context.buffers[number], port, known) if output is None else output
            for output, port, number in rows
        ]

    def start_counters(self) -> NoReturn:
        raise IngotError("bad-option", "C code has no cycle counters")

    def counters(self) -> Counters:
        self.start_counters()

    def trace(self, call: Callable[[], None], calls: int) -> Events:
        self.start_counters()


def _copy_out(source: int | None, port: Port, known: dict[str, int]) -> np.ndarray:
    shape = tuple(arith.evaluate(dim, known) for dim in port.shape)
    try:
        result = np.empty(shape, dtypes.of(port.dtype).numpy)
    except ValueError as error:  # the number of bytes overflows
        raise MemoryError(str(error)) from error
    if result.nbytes and source is not None:
        ctypes.memmove(result.ctypes.data, source, result.nbytes)
    return result

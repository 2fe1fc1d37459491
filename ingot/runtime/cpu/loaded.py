"""A package on the CPU: runs it on the thread pool. In: sizes and arrays. Out: output arrays.

Each call takes its own context from a free list, writes the addresses of the arrays into it and
makes one foreign call, `pool_run`. Calls like the one before take the native fast path (`repeat`).
Made by device.py, called by executable.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.tape import definitions
from ingot.runtime.arrays import address_of
from ingot.runtime.contexts import Contexts
from ingot.runtime.cpu import module
from ingot.runtime.cpu.code import Code
from ingot.runtime.cpu.context import Context
from ingot.runtime.cpu.fast_path import FastPath, is_supported
from ingot.runtime.cpu.peak import measure
from ingot.runtime.cpu.pool import Pool, pool
from ingot.runtime.failure import closed, run_error
from ingot.runtime.package import Package, Port
from ingot.runtime.profile import Counters
from ingot.runtime.sizes import Sizes
from ingot.runtime.trace import Clock, Events
from ingot.support import options
from ingot.support.errors import IngotError


class LoadedCpuModule:
    """See runtime/device.py, LoadedModule."""

    def __init__(self, package: Package):
        self._package, self._module = package, module.read(package)
        self._code: Code | None = Code(self._module)
        self._threads = 1
        self._contexts = Contexts[Context]()
        self._idle = self._contexts.idle
        self._fast_paths: list[FastPath] = []  # mostly one; a call pops it and so owns it
        self._slots = [port.storage.number for port in (*package.inputs, *package.outputs)]
        self._in_dtypes = [dtypes.of(port.dtype).numpy for port in package.inputs]
        self._out_dtypes = [dtypes.of(port.dtype).numpy for port in package.outputs]
        self._is_plain = all(port.storage.kind == "slot" for port in package.outputs)
        self._last: Sizes | None = None
        self._first_cycle = 0
        self._allows_fast_path = (
            options.current().has("fast_path")
            and self._is_plain
            and not package.state
            and not package.strings
            and not package.host_steps
            and self._module.probe is None
            and is_supported()
        )

    @property
    def threads(self) -> int:
        return self._threads

    @threads.setter
    def threads(self, count: int) -> None:
        self._threads = count
        # a fast path that a call is using now is returned to the old list
        old, self._fast_paths = self._fast_paths, []
        self._drop_fast_paths(old)

    def context(self) -> LoadedCpuModule:
        own = object.__new__(LoadedCpuModule)
        contexts = Contexts[Context]()
        own.__dict__.update(self.__dict__, _contexts=contexts, _idle=contexts.idle, _fast_paths=[])
        return own

    def close(self) -> None:
        self._code = None  # `run` is an error from here on
        self._contexts.wait(self._take_free)

    def trim(self) -> int:
        return sum(context.reserved_bytes for context in self._take_free())

    def _take_free(self) -> list[Context]:
        """All contexts that no call is using; the caller has them now."""
        self._drop_fast_paths(self._fast_paths)
        return self._contexts.take_idle()

    def _drop_fast_paths(self, paths: list[FastPath]) -> None:
        while paths:
            with suppress(IndexError):  # another thread was faster
                self._idle.append(paths.pop().context)

    # --- running ------------------------------------------------------------------------------

    def repeat(self, inputs: Sequence[Any]) -> list[np.ndarray] | None:
        """The native fast path; None if these arrays are not like the last call's."""
        fast_paths = self._fast_paths
        if not fast_paths:
            return None
        try:
            fast_path = fast_paths.pop()
        except IndexError:
            return None  # another thread has it
        try:
            outputs = fast_path.call(*inputs)
        except BaseException:  # an interrupt, or no memory for the outputs
            self._contexts.forget(fast_path.context)
            raise
        if outputs is None:
            self._idle.append(fast_path.context)
            return None
        if outputs.__class__ is not list:
            error = run_error(self._package, fast_path.context.take_errors())
            fast_paths.append(fast_path)
            raise error
        fast_paths.append(fast_path)
        return outputs

    def run(
        self,
        sizes: Sizes,
        inputs: Sequence[np.ndarray],
        outputs: list[np.ndarray | None],
        threads: int | None,
        is_plain: bool,
    ) -> list[np.ndarray]:
        # read the list before the thread count: the setter of `threads` replaces the list
        fast_paths, code = self._fast_paths, self._code
        if code is None:
            raise closed()
        workers = pool()
        useful, count = sizes.useful_threads, threads or self._threads
        wanted = (count if useful is None or count < useful else useful) - 1
        if wanted > workers.limit:
            wanted = workers.limit
        if wanted > workers.count:
            workers.grow(wanted, code.services)
        context = self._context(code, wanted)
        try:
            failed = self._run(context, workers, sizes, (*inputs, *outputs), wanted)
            if wanted and context.threads_used <= wanted:  # other calls have the workers: add some
                workers.grow(workers.count + wanted + 1 - context.threads_used, code.services)
            if failed:
                raise run_error(self._package, context.take_errors())
            finished = outputs if self._is_plain else self._finish(context, outputs)
            is_repeated, self._last = sizes is self._last, sizes
            is_usual = is_plain and self._allows_fast_path and not fast_paths and not threads
            if is_repeated and is_usual:
                fast_paths.append(self._make_fast_path(workers, context, sizes, inputs))
                return finished  # type: ignore[return-value]
        except IngotError:
            self._idle.append(context)
            raise
        except BaseException:
            self._contexts.forget(context)
            raise
        self._idle.append(context)
        return finished  # type: ignore[return-value]

    def _run(
        self, context: Context, workers: Pool, sizes: Sizes, arrays: Iterable[Any], wanted: int
    ) -> int:
        """The foreign call; 0 if all went well."""
        if self._code is None:  # closed since this call has looked: `close` waits for contexts
            raise closed()
        context.prepare(sizes, workers.address, wanted)
        buffers = context.buffers
        for slot, array in zip(self._slots, arrays):
            if array is not None:
                buffers[slot] = address_of(array)
        return context.code.services.pool_run(context.pool_run)

    def _context(self, code: Code, wanted: int) -> Context:
        """A free context with room for the threads, or a new one; smaller ones are dropped."""
        while True:
            try:
                context = self._idle.pop()
            except IndexError:
                made = Context(self._package, self._module, code, wanted + 1)
                return self._contexts.add(made)
            if context.threads > wanted:
                return context

    def _make_fast_path(
        self, workers: Pool, context: Context, sizes: Sizes, inputs: Sequence[np.ndarray]
    ) -> FastPath:
        given = list(zip(self._slots, self._in_dtypes, [a.shape for a in inputs]))
        made = list(zip(self._slots[len(given) :], self._out_dtypes, sizes.outputs))
        return FastPath(workers, context, given, made)  # type: ignore[arg-type]

    def _free_contexts(self) -> list[Context]:
        """All contexts that no call is using, the fast path's last."""
        return [*self._idle, *(path.context for path in self._fast_paths)]

    # --- data-dependent outputs ---------------------------------------------------------------

    def _finish(
        self, context: Context, outputs: list[np.ndarray | None]
    ) -> list[np.ndarray | None]:
        """Copy out the outputs whose sizes became known in the run."""
        known = definitions(self._package.offsets).evaluate(self._sizes_of(context))
        rows = zip(outputs, self._package.outputs, self._out_dtypes)
        return [
            _copy_out(context, port, dtype, known) if output is None else output
            for output, port, dtype in rows
        ]

    def _sizes_of(self, context: Context) -> dict[str, int]:
        return dict(zip((s.name for s in self._package.symbols), context.symbols()))

    # --- profile ------------------------------------------------------------------------------

    @property
    def has_counters(self) -> bool:
        return self._module.probe is not None

    def start_counters(self) -> None:
        context = self._idle[-1]
        context.take_counts()
        self._first_cycle = context.code.services.cycles()

    def counters(self) -> Counters:
        assert self._module.probe is not None, "compiled without counters"
        context = self._idle[-1]
        cycles = context.code.services.cycles() - self._first_cycle
        counts = context.take_counts()
        peak = measure(self._module.probe, len(counts))
        return Counters(counts, cycles, self._sizes_of(context), peak)

    def trace(self, call: Callable[[], None], calls: int) -> Events:
        assert self._module.probe is not None, "compiled without counters"
        context = self._idle[-1]
        cycles = context.code.services.cycles
        clock = Clock(cycles)
        context.start_trace(0)
        call()
        # work stealing may give one thread the events of all
        context.start_trace(calls * (sum(context.event_counts()) + 1))
        spans = []
        for _ in range(calls):
            start = cycles()
            call()
            spans.append((start, cycles()))
        threads, lost = context.events(), sum(context.event_counts())
        lost -= sum(map(len, threads))
        context.start_trace(0)
        return Events(threads, spans, clock.us_per_tick(), self._sizes_of(context), lost)


def _copy_out(context: Context, port: Port, dtype: np.dtype, known: dict[str, int]) -> np.ndarray:
    shape = tuple(arith.evaluate(dim, known) for dim in port.shape)
    try:
        result = np.empty(shape, dtype)
    except ValueError as error:  # the number of bytes overflows
        raise MemoryError(str(error)) from error
    if result.nbytes:
        if port.storage.kind == "dynamic":
            source = context.dynamic(port.storage.number)
        else:
            assert port.storage.offset is not None
            source = context.arena(port.storage.number)
            source += arith.evaluate(port.storage.offset, known)
        ctypes.memmove(result.ctypes.data, source, result.nbytes)
    return result

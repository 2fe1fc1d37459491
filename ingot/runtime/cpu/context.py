"""The memory of one call: a ctx for each thread, tables, arenas, scratch. No two calls share it.

In: a Package. Out: addresses that emitted code reads (support/abi.py). loaded.py keeps unused
contexts in a free list.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

from ingot.runtime.cpu.code import Code
from ingot.runtime.cpu.module import CpuModule
from ingot.runtime.cpu.services import aligned_alloc, free
from ingot.runtime.package import Package
from ingot.runtime.sizes import Sizes
from ingot.runtime.trace import Event
from ingot.support import abi

_LINE = 64  # bytes of a cache line
_SCRATCH = abi.CTX["scratch"] // 8
_POOL, _WANTED = abi.POOL_RUN["pool"] // 8, abi.POOL_RUN["wanted"] // 8

Record = tuple[int, int, int, int]


def _round(size: int) -> int:
    return -(-size // _LINE) * _LINE


class Context:
    """The tables' addresses never change; arenas and scratch grow when the sizes need more."""

    _has_memory = False

    def __init__(self, package: Package, module: CpuModule, code: Code, threads: int):
        self.threads, self.code = threads, code
        self._package = package
        self._dynamic_count = module.dynamic_count
        arenas, symbols = len(package.arenas), len(package.symbols)
        counted = len(package.launches) if module.probe is not None else 0
        self._profile_stride = _round(abi.PROFILE_BYTES * counted)
        sizes = {
            "sync": abi.SYNC_BYTES + abi.QUEUE_BYTES * threads,
            "buffers": 8 * module.slot_count,
            "arenas": 16 * arenas,
            "dynamics": abi.DYNAMIC_BYTES * module.dynamic_count,
            "ctx": abi.CTX_BYTES * threads,
            "error": abi.ERROR_BYTES * threads,
            "symbols": _round(8 * symbols) * threads,
            "pool_run": abi.POOL_RUN["workers"] + 8 * threads,
            "profile": self._profile_stride * threads,
            "trace": abi.TRACE_BYTES * threads if counted else 0,
        }
        self._memory = ctypes.create_string_buffer(sum(map(_round, sizes.values())) + _LINE)
        at: dict[str, int] = {}
        address = _round(ctypes.addressof(self._memory))
        for name, size in sizes.items():
            at[name], address = address, address + _round(size)
        self._at = at
        self.pool_run = at["pool_run"]
        self.buffers = _words(at["buffers"], module.slot_count)
        self._arenas = _words(at["arenas"], 2 * arenas)
        self._dynamics = _words(at["dynamics"], 3 * module.dynamic_count)
        self._pool_run = _words(at["pool_run"], abi.POOL_RUN["workers"] // 8)
        self._symbols = [
            _words(at["symbols"] + i * _round(8 * symbols), symbols) for i in range(threads)
        ]
        self._ctx = [_words(at["ctx"] + i * abi.CTX_BYTES, len(abi.CTX)) for i in range(threads)]
        self._scratch_bytes = 0
        self._sizes: Sizes | None = None
        self._has_memory = True
        self._fill()

    def _fill(self) -> None:
        at, code = self._at, self.code
        self._pool_run[abi.POOL_RUN["entry"] // 8] = code.entry
        self._pool_run[abi.POOL_RUN["ctx"] // 8] = at["ctx"]
        fields = {name: at[name] for name in ("buffers", "arenas", "sync", "dynamics")}
        fields |= {"constants": self._package.constants.ctypes.data, "kernels": code.kernels}
        fields |= {"services": code.services.address, "arena_count": len(self._package.arenas)}
        for i, ctx in enumerate(self._ctx):
            own = {
                "thread": i,
                "error": at["error"] + i * abi.ERROR_BYTES,
                "symbols": ctypes.addressof(self._symbols[i]),
                "profile": at["profile"] + i * self._profile_stride,
                "trace": at["trace"] + i * abi.TRACE_BYTES,
            }
            for name, value in {**fields, **own}.items():
                ctx[abi.CTX[name] // 8] = value

    def prepare(self, sizes: Sizes, pool: int, wanted: int) -> None:
        """Prepare the memory for a run that wants `wanted` workers of the pool at that address."""
        if sizes is not self._sizes:
            self._reserve(sizes)
        self._pool_run[_POOL] = pool
        self._pool_run[_WANTED] = wanted

    def slot_address(self, slot: int) -> int:
        """The address of the table entry that holds a caller's array."""
        return self._at["buffers"] + 8 * slot

    @property
    def threads_used(self) -> int:
        """Threads of the last run, the caller's included."""
        return self._pool_run[abi.POOL_RUN["threads"] // 8]

    def _reserve(self, sizes: Sizes) -> None:
        self._sizes = None  # remains None if an allocation below fails
        count = len(self._package.arenas)
        for i, need in enumerate(sizes.arenas):
            if need > self._arenas[count + i] or not self._arenas[i]:
                self._arenas[count + i] = 0
                _reallocate(self._arenas, i, need)
                self._arenas[count + i] = need
        if sizes.scratch_bytes > self._scratch_bytes:
            self._scratch_bytes = 0
            for ctx in self._ctx:
                _reallocate(ctx, _SCRATCH, sizes.scratch_bytes)
            self._scratch_bytes = sizes.scratch_bytes
        for table in self._symbols:
            for i, value in enumerate(sizes.symbols):
                table[i] = value
        self._sizes = sizes

    def symbols(self) -> list[int]:
        """The symbol table of thread 0 after a run, data-dependent sizes included."""
        return list(self._symbols[0])

    @property
    def reserved_bytes(self) -> int:
        """Arenas and scratch; what a run reserved for sizes that depend on data is not counted."""
        count = len(self._package.arenas)
        return sum(self._arenas[count:]) + self._scratch_bytes * self.threads

    def arena(self, number: int) -> int:
        return self._arenas[number]

    def dynamic(self, number: int) -> int:
        return self._dynamics[3 * number + abi.DYNAMIC["data"] // 8]

    def take_counts(self) -> list[list[tuple[int, int]]]:
        """For each thread of the last run, (busy, wait) cycles of every launch; then cleared."""
        found, words = [], 2 * len(self._package.launches)
        for i in range(self.threads_used):
            counts = list(_words(self._at["profile"] + i * self._profile_stride, words))
            found.append(list(zip(counts[0::2], counts[1::2])))
        ctypes.memset(self._at["profile"], 0, self._profile_stride * self.threads)
        return found

    def start_trace(self, capacity: int) -> None:
        """Clear the traces; each thread keeps its first `capacity` events, and counts all."""
        self._events = ctypes.create_string_buffer(abi.EVENT_BYTES * capacity * self.threads)
        for i in range(self.threads):
            events = ctypes.addressof(self._events) + i * abi.EVENT_BYTES * capacity
            record = {"count": 0, "capacity": capacity, "events": events}
            for name, value in record.items():
                self._trace(i)[abi.TRACE[name] // 8] = value

    def _trace(self, thread: int) -> Any:
        return _words(self._at["trace"] + thread * abi.TRACE_BYTES, len(abi.TRACE))

    def event_counts(self) -> list[int]:
        """Events of each thread since the last start_trace, those without room included."""
        return [self._trace(i)[abi.TRACE["count"] // 8] for i in range(self.threads)]

    def events(self) -> list[list[Event]]:
        """The events that were kept, in order: of each thread that has run, and of the caller's."""
        found, width = [], len(abi.EVENT)
        for i, count in enumerate(self.event_counts()):
            _, capacity, address = self._trace(i)
            kept = min(count, capacity)
            words = list(_words(address, width * kept))
            found.append([Event(*words[n : n + width]) for n in range(0, width * kept, width)])
        while len(found) > 1 and not found[-1]:
            found.pop()
        return found

    def take_errors(self) -> list[Record]:
        """(launch, reason, value, value) of the threads that failed, by thread. Clears the records
        and the barrier, which failed threads may have left in any state."""
        records = [_words(self._at["error"] + i * abi.ERROR_BYTES, 4) for i in range(self.threads)]
        found = [(r[0], r[1], r[2], r[3]) for r in records if r[1]]
        ctypes.memset(self._at["error"], 0, abi.ERROR_BYTES * self.threads)
        ctypes.memset(self._at["sync"], 0, abi.SYNC_BYTES)  # a call clears the queues itself
        return found

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # at exit, a daemon thread may still be using this memory, and modules may be gone; the
        # system frees it then
        if not self._has_memory or is_finalizing():
            return
        for i in range(len(self._package.arenas)):
            free(self._arenas[i])
        for ctx in self._ctx:
            free(ctx[_SCRATCH])
        for i in range(self._dynamic_count):
            free(self.dynamic(i))


def _words(address: int, count: int) -> Any:
    return (ctypes.c_int64 * count).from_address(address)


def _reallocate(table: Any, index: int, size: int) -> None:
    """Reallocate table[index]. An interrupt in here leaks the memory, but never frees it twice."""
    old, table[index] = table[index], 0
    free(old)
    table[index] = aligned_alloc(size)

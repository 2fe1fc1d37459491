"""The memory of one call: a ctx for each thread, tables, arenas, scratch. Two calls never share it.

In: a Package. Out: addresses that emitted code reads (support/abi.py). An executable keeps contexts
at rest in a free list.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from ingot.runtime.package import Package
from ingot.runtime.services import Services, aligned_alloc, free
from ingot.runtime.sizes import Sizes
from ingot.support import abi

_LINE = 64
_SCRATCH = abi.CTX["scratch"] // 8
_POOL, _WANTED = abi.GANG["pool"] // 8, abi.GANG["wanted"] // 8

Record = tuple[int, int, int, int]


def _round(size: int) -> int:
    return -(-size // _LINE) * _LINE


class Context:
    """All addresses are fixed while it lives; arenas and scratch grow when sizes ask for it."""

    _has_memory = False

    def __init__(
        self, package: Package, services: Services, kernels: int, entry: int, threads: int
    ):
        self.threads = threads
        self._package = package
        arenas, symbols = len(package.arenas), len(package.symbols)
        counted = len(package.launches) if package.is_profiled else 0
        self._profile_stride = _round(abi.PROFILE_BYTES * counted)
        sizes = {
            "sync": abi.SYNC_BYTES + abi.CLAIM_BYTES * threads,
            "buffers": 8 * package.slot_count,
            "arenas": 16 * arenas,
            "dynamics": abi.DYNAMIC_BYTES * package.dynamic_count,
            "ctx": abi.CTX_BYTES * threads,
            "error": abi.ERROR_BYTES * threads,
            "symbols": _round(8 * symbols) * threads,
            "gang": abi.GANG["slots"] + 8 * threads,
            "profile": self._profile_stride * threads,
        }
        self._memory = ctypes.create_string_buffer(sum(map(_round, sizes.values())) + _LINE)
        at: dict[str, int] = {}
        place = _round(ctypes.addressof(self._memory))
        for name, size in sizes.items():
            at[name], place = place, place + _round(size)
        self._at = at
        self.gang = at["gang"]
        self.buffers = _words(at["buffers"], package.slot_count)
        self._arenas = _words(at["arenas"], 2 * arenas)
        self._dynamics = _words(at["dynamics"], 3 * package.dynamic_count)
        self._gang = _words(at["gang"], abi.GANG["slots"] // 8)
        self._symbols = [
            _words(at["symbols"] + i * _round(8 * symbols), symbols) for i in range(threads)
        ]
        self._ctx = [_words(at["ctx"] + i * abi.CTX_BYTES, len(abi.CTX)) for i in range(threads)]
        self._scratch_bytes = 0
        self._sizes: Sizes | None = None
        self._has_memory = True
        self._fill(services.address, kernels, entry)

    def _fill(self, services: int, kernels: int, entry: int) -> None:
        at = self._at
        self._gang[abi.GANG["entry"] // 8] = entry
        self._gang[abi.GANG["ctx"] // 8] = at["ctx"]
        fields = {name: at[name] for name in ("buffers", "arenas", "sync", "dynamics")}
        fields |= {"constants": self._package.constants.ctypes.data, "kernels": kernels}
        fields |= {"services": services, "arena_count": len(self._package.arenas)}
        for i, ctx in enumerate(self._ctx):
            own = {
                "thread": i,
                "error": at["error"] + i * abi.ERROR_BYTES,
                "symbols": ctypes.addressof(self._symbols[i]),
                "profile": at["profile"] + i * self._profile_stride,
            }
            for name, value in {**fields, **own}.items():
                ctx[abi.CTX[name] // 8] = value

    def prepare(self, sizes: Sizes, pool: int, wanted: int) -> None:
        """Ready the memory for a run that would like so many workers of the pool."""
        if sizes is not self._sizes:
            self._reserve(sizes)
        self._gang[_POOL] = pool
        self._gang[_WANTED] = wanted

    def place(self, slot: int) -> int:
        """Where the address of one of the caller's arrays is put."""
        return self._at["buffers"] + 8 * slot

    @property
    def team(self) -> int:
        """How many threads the last run had."""
        return self._gang[abi.GANG["team"] // 8]

    def _reserve(self, sizes: Sizes) -> None:
        self._sizes = None  # stays so if memory runs out half-way
        count = len(self._package.arenas)
        for i, need in enumerate(sizes.arenas):
            if need > self._arenas[count + i] or not self._arenas[i]:
                self._arenas[count + i] = 0
                _renew(self._arenas, i, need)
                self._arenas[count + i] = need
        if sizes.scratch_bytes > self._scratch_bytes:
            self._scratch_bytes = 0
            for ctx in self._ctx:
                _renew(ctx, _SCRATCH, sizes.scratch_bytes)
            self._scratch_bytes = sizes.scratch_bytes
        for table in self._symbols:
            for i, value in enumerate(sizes.symbols):
                table[i] = value
        self._sizes = sizes

    def symbols(self) -> list[int]:
        """The symbol table of thread 0 after a run: bound sizes included."""
        return list(self._symbols[0])

    def arena(self, number: int) -> int:
        return self._arenas[number]

    def dynamic(self, number: int) -> int:
        return self._dynamics[3 * number + abi.DYNAMIC["data"] // 8]

    def take_counts(self) -> list[list[tuple[int, int]]]:
        """Of each thread of the last team: (busy, wait) cycles of every launch; zero afterwards."""
        found, words = [], 2 * len(self._package.launches)
        for i in range(self.team):
            counts = list(_words(self._at["profile"] + i * self._profile_stride, words))
            found.append(list(zip(counts[0::2], counts[1::2])))
        ctypes.memset(self._at["profile"], 0, self._profile_stride * self.threads)
        return found

    def take_errors(self) -> list[Record]:
        """(launch, reason, value, value) of the threads that failed, in their order. The records
        and the barrier, which threads may have left half-crossed, are as new afterwards."""
        records = [_words(self._at["error"] + i * abi.ERROR_BYTES, 4) for i in range(self.threads)]
        found = [(r[0], r[1], r[2], r[3]) for r in records if r[1]]
        ctypes.memset(self._at["error"], 0, abi.ERROR_BYTES * self.threads)
        ctypes.memset(self._at["sync"], 0, abi.SYNC_BYTES)  # a call clears the claims itself
        return found

    def __del__(self) -> None:
        # at exit, a daemon thread may still be running in it; the system frees everything then
        if not self._has_memory or sys.is_finalizing():
            return
        for i in range(len(self._package.arenas)):
            free(self._arenas[i])
        for ctx in self._ctx:
            free(ctx[_SCRATCH])
        for i in range(self._package.dynamic_count):
            free(self.dynamic(i))


def _words(address: int, count: int) -> Any:
    return (ctypes.c_int64 * count).from_address(address)


def _renew(table: Any, place: int, size: int) -> None:
    """Other memory at table[place]. An interrupt on the way leaks it rather than frees it twice."""
    old, table[place] = table[place], 0
    free(old)
    table[place] = aligned_alloc(size)

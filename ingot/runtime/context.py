"""The memory of one call: a ctx for each thread, tables, arenas, scratch. Never shared by two calls.

In: a Package. Out: addresses that emitted code reads (support/abi.py). An executable keeps contexts
at rest in a free list.
"""

from __future__ import annotations

import ctypes
from typing import Any

from ingot.runtime.package import Package
from ingot.runtime.services import Services, aligned_alloc, free
from ingot.runtime.sizes import Sizes
from ingot.support import abi

_LINE = 64
_FAILED = abi.SYNC["failed"] // 4


def _round(size: int) -> int:
    return -(-size // _LINE) * _LINE


class Context:
    """All addresses are fixed while it lives; arenas and scratch grow when sizes ask for it."""

    def __init__(self, package: Package, services: Services, kernels: int, threads: int):
        self.threads = threads
        self._package = package
        arenas, symbols = len(package.arenas), len(package.symbols)
        sizes = {
            "sync": abi.SYNC_BYTES,
            "buffers": 8 * max(1, package.slot_count),
            "arenas": 16 * max(1, arenas),
            "dynamics": abi.DYNAMIC_BYTES * max(1, package.dynamic_count),
            "ctx": abi.CTX_BYTES * threads,
            "error": abi.ERROR_BYTES * threads,
            "symbols": _round(8 * max(1, symbols)) * threads,
            "gang": abi.GANG["pairs"] + 16 * threads,
        }
        self._memory = ctypes.create_string_buffer(sum(map(_round, sizes.values())) + _LINE)
        at: dict[str, int] = {}
        place = _round(ctypes.addressof(self._memory))
        for name, size in sizes.items():
            at[name], place = place, place + _round(size)
        self._at = at
        self._symbol_stride = _round(8 * max(1, symbols))
        self.buffers = _words(at["buffers"], max(1, package.slot_count))
        self._arenas = _words(at["arenas"], 2 * max(1, arenas))
        self._gang = _words(at["gang"], 3 + 2 * threads)
        self._sync = (ctypes.c_int32 * (abi.SYNC_BYTES // 4)).from_address(at["sync"])
        self._symbols = [
            _words(at["symbols"] + i * self._symbol_stride, max(1, symbols)) for i in range(threads)
        ]
        self._scratch = [0] * threads
        self._scratch_bytes = 0
        self._team = 0
        self._sizes: Sizes | None = None
        self.ctx = [at["ctx"] + i * abi.CTX_BYTES for i in range(threads)]
        self.gang = at["gang"]
        shared = {
            "buffers": at["buffers"],
            "constants": package.constants.ctypes.data,
            "arenas": at["arenas"],
            "sync": at["sync"],
            "kernels": kernels,
            "services": services.address,
            "dynamics": at["dynamics"],
            "arena_count": arenas,
        }
        for i, ctx in enumerate(self.ctx):
            own = {
                "thread": i,
                "threads": threads,
                "error": at["error"] + i * abi.ERROR_BYTES,
                "symbols": at["symbols"] + i * self._symbol_stride,
            }
            for name, value in {**shared, **own}.items():
                _word(ctx + abi.CTX[name]).value = value

    def prepare(self, sizes: Sizes, team: int, entry: int, slots: list[int]) -> None:
        """Ready the memory for a run of `team` threads; `slots` are the leased workers' mailboxes."""
        if sizes is not self._sizes:
            self._reserve(sizes)
        if self._package.symbols:
            for table in self._symbols[:team]:
                for i, value in enumerate(sizes.symbols):
                    table[i] = value
        for i in range(self._package.dynamic_count):
            self._dynamic(i, "rows").value = 0
        self._sync[_FAILED] = 0
        if team != self._team:
            for ctx in self.ctx[:team]:
                _word(ctx + abi.CTX["threads"]).value = team
            self._team = team
        if team == 1:
            return
        gang = self._gang
        gang[0], gang[1], gang[2] = team - 1, entry, self.ctx[0]
        for i, slot in enumerate(slots):
            gang[3 + 2 * i], gang[4 + 2 * i] = slot, self.ctx[i + 1]

    def _reserve(self, sizes: Sizes) -> None:
        self._sizes = None  # stays so if memory runs out half-way
        count = len(self._package.arenas)
        for i, need in enumerate(sizes.arenas):
            if need > self._arenas[count + i] or not self._arenas[i]:
                free(self._arenas[i])
                self._arenas[i] = self._arenas[count + i] = 0
                self._arenas[i] = aligned_alloc(need)
                self._arenas[count + i] = need
        if sizes.scratch_bytes > self._scratch_bytes:
            for i in range(self.threads):
                free(self._scratch[i])
                self._scratch[i] = 0
                self._scratch[i] = aligned_alloc(sizes.scratch_bytes)
                _word(self.ctx[i] + abi.CTX["scratch"]).value = self._scratch[i]
            self._scratch_bytes = sizes.scratch_bytes
        self._sizes = sizes

    def symbols(self) -> list[int]:
        """The symbol table of thread 0 after a run: bound sizes included."""
        return list(self._symbols[0])[: len(self._package.symbols)]

    def arena(self, number: int) -> int:
        return self._arenas[number]

    def dynamic(self, number: int) -> int:
        return self._dynamic(number, "data").value

    def errors(self, team: int) -> list[tuple[int, int, int, int]]:
        """(launch, reason, value, value) of the threads that failed; the records are cleared."""
        found = []
        for i in range(team):
            record = _words(self._at["error"] + i * abi.ERROR_BYTES, 4)
            launch, reason, first, second = record
            if reason:
                found.append((launch, reason, first, second))
            record[0] = record[1] = record[2] = record[3] = 0
        return found

    def reset(self) -> None:
        """After a failed run: threads may have left a barrier half-crossed."""
        for i in range(len(self._sync)):
            self._sync[i] = 0

    def _dynamic(self, number: int, name: str) -> Any:
        return _word(self._at["dynamics"] + number * abi.DYNAMIC_BYTES + abi.DYNAMIC[name])

    def __del__(self) -> None:
        if not hasattr(self, "_scratch"):
            return
        for i in range(len(self._package.arenas)):
            free(self._arenas[i])
        for address in self._scratch:
            free(address)
        for i in range(self._package.dynamic_count):
            free(self.dynamic(i))


def _word(address: int) -> ctypes.c_int64:
    return ctypes.c_int64.from_address(address)


def _words(address: int, count: int) -> Any:
    return (ctypes.c_int64 * count).from_address(address)

"""What the machine can do at most, found by one short measurement. In: a package's probe, a thread
count. Out: the rate of f32 multiply-adds, and of copying within each cache and through memory.

A few tens of milliseconds, once for each thread count of a process. All threads work at once, so
what they share (memory, clock, a core) is shared here as in a run. Called by executable.profile.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ingot.runtime.arrays import address_of
from ingot.runtime.loader import LoadedObject
from ingot.runtime.package import Probe

ROUNDS = 5
FLOPS = 1e8  # of one round and thread
COPIED_BYTES = 32 << 20  # of one round and thread, at least
MOST_BYTES = 128 << 20  # of the arrays of one thread


@dataclass(frozen=True)
class Level:
    """A place where data can lie: `bytes` of it for each thread (None: no end of it)."""

    name: str
    bytes: int | None
    bytes_per_us: float  # read and written, together


@dataclass(frozen=True)
class Peak:
    threads: int
    flops_per_us: float
    levels: tuple[Level, ...]  # nearest first, the memory last

    def bound(self, flops: int | None, moved_bytes: int) -> tuple[str, float]:
        """What bounds a kernel, and the least time in µs it leaves: its arithmetic, or moving its
        arrays once from where all of them fit."""
        share = moved_bytes / self.threads
        level = next(x for x in self.levels if x.bytes is None or share <= x.bytes)
        compute_us, move_us = (flops or 0) / self.flops_per_us, moved_bytes / level.bytes_per_us
        return ("fma", compute_us) if compute_us > move_us else (level.name, move_us)

    def __str__(self) -> str:
        copies = ", ".join(f"{x.name} {x.bytes_per_us / 1e3:.1f}" for x in self.levels)
        return (
            f"peak, as measured: {self.flops_per_us / 1e3:.1f} GFLOP/s of f32 multiply-adds; "
            f"GB/s of copying: {copies}"
        )


@lru_cache(maxsize=16)
def measure(probe: Probe, threads: int) -> Peak:
    code = LoadedObject(probe.code)
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    fma = ctypes.CFUNCTYPE(None, pointer, number)(code.address("probe_fma"))
    copy = ctypes.CFUNCTYPE(None, pointer, pointer, number, number)(code.address("probe_copy"))
    levels = []
    for i, size in enumerate(probe.caches):
        levels.append(Level(f"L{i + 1}", size, _copy_rate(copy, size // 4, threads)))
    beyond = min(MOST_BYTES, max(probe.caches, default=0)) // threads
    levels.append(Level("memory", None, _copy_rate(copy, max(beyond, 4 << 20), threads)))
    return Peak(threads, _fma_rate(fma, probe.flops_per_turn, threads), tuple(levels))


def _fma_rate(fma: Callable, flops_per_turn: int, threads: int) -> float:
    turns = round(FLOPS / flops_per_turn)
    # a·½ + ½ stays between ½ and 1: no subnormal slows it down
    works = [np.full(4096, 0.5, np.float32) for _ in range(threads)]
    calls = [lambda w=work: fma(address_of(w), turns) for work in works]
    return threads * turns * flops_per_turn / _best_us(calls)


def _copy_rate(copy: Callable, size: int, threads: int) -> float:
    """From one array to another of `size` bytes, again and again; each thread has its own two."""
    size = max(4096, size // 4096 * 4096)
    turns = max(1, -(-COPIED_BYTES // size))
    pairs = [(np.ones(size, np.uint8), np.ones(size, np.uint8)) for _ in range(threads)]
    calls = [lambda a=a, b=b: copy(address_of(a), address_of(b), size, turns) for a, b in pairs]
    return threads * turns * 2 * size / _best_us(calls)


def _best_us(calls: Sequence[Callable[[], None]]) -> float:
    """The shortest of some rounds, each from the first thread's start to the last one's end."""
    return min(_together_us(calls) for _ in range(ROUNDS))


def _together_us(calls: Sequence[Callable[[], None]]) -> float:
    spans: list[tuple[float, float]] = []
    ready = threading.Barrier(len(calls))

    def work(call: Callable[[], None]) -> None:
        ready.wait()
        start = time.perf_counter()
        call()  # foreign code: the interpreter's lock is free meanwhile
        spans.append((start, time.perf_counter()))

    others = [threading.Thread(target=work, args=(call,)) for call in calls[1:]]
    for thread in others:
        thread.start()
    work(calls[0])
    for thread in others:
        thread.join()
    return (max(end for _, end in spans) - min(start for start, _ in spans)) * 1e6

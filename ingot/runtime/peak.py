"""The machine's roofline, by a short measurement. In: a package's probe, a thread count. Out: peak
f32 FLOP/s, and the copy bandwidth of each cache and of main memory.

It takes tens of milliseconds, once per process and thread count. All threads run at once, so they
share memory bandwidth, clock and cores as in a run of the model. Called by executable.profile.
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

ROUNDS = 5  # repetitions; the fastest counts
FLOPS = 1e8  # per thread and round; heuristic
MIN_COPIED_BYTES = 32 << 20  # per thread and round; heuristic
MAX_ARRAY_BYTES = 128 << 20  # of one array of all threads together, for the memory bandwidth


@dataclass(frozen=True)
class Level:
    """A level of the memory hierarchy: its size per thread (None: main memory), its bandwidth."""

    name: str
    bytes: int | None
    bytes_per_us: float  # of a copy: bytes read plus bytes written


@dataclass(frozen=True)
class Peak:
    threads: int
    flops_per_us: float
    levels: tuple[Level, ...]  # L1, L2 …, main memory

    def bound(self, flops: int | None, moved_bytes: int) -> tuple[str, float]:
        """The roofline model: what bounds a kernel ("fma" or a memory level), and its least time in
        µs. Its arrays move once, from the nearest level that holds each thread's part of them."""
        bytes_per_thread = moved_bytes / self.threads
        level = next(x for x in self.levels if x.bytes is None or bytes_per_thread <= x.bytes)
        compute_us, move_us = (flops or 0) / self.flops_per_us, moved_bytes / level.bytes_per_us
        return ("fma", compute_us) if compute_us > move_us else (level.name, move_us)

    def __str__(self) -> str:
        copies = ", ".join(f"{x.name} {x.bytes_per_us / 1e3:.1f}" for x in self.levels)
        return (
            f"measured peak: {self.flops_per_us / 1e3:.1f} GFLOP/s (f32 FMA); "
            f"copy bandwidth in GB/s: {copies}"
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
    uncached = min(MAX_ARRAY_BYTES, max(probe.caches, default=0)) // threads
    levels.append(Level("memory", None, _copy_rate(copy, max(uncached, 4 << 20), threads)))
    return Peak(threads, _fma_rate(fma, probe.flops_per_iteration, threads), tuple(levels))


def _fma_rate(fma: Callable, flops_per_iteration: int, threads: int) -> float:
    iterations = round(FLOPS / flops_per_iteration)
    # a·½ + ½ stays between ½ and 1: no subnormal slows it down
    operands = [np.full(4096, 0.5, np.float32) for _ in range(threads)]
    calls = [lambda x=x: fma(address_of(x), iterations) for x in operands]
    return threads * iterations * flops_per_iteration / _best_us(calls)


def _copy_rate(copy: Callable, size: int, threads: int) -> float:
    """Each thread copies between two arrays of its own, of `size` bytes, again and again."""
    size = max(4096, size // 4096 * 4096)
    repeats = max(1, -(-MIN_COPIED_BYTES // size))
    pairs = [(np.ones(size, np.uint8), np.ones(size, np.uint8)) for _ in range(threads)]
    calls = [lambda a=a, b=b: copy(address_of(a), address_of(b), size, repeats) for a, b in pairs]
    return threads * repeats * 2 * size / _best_us(calls)


def _best_us(calls: Sequence[Callable[[], None]]) -> float:
    """The fastest round; a round lasts from the first thread's start to the last thread's end."""
    return min(_together_us(calls) for _ in range(ROUNDS))


def _together_us(calls: Sequence[Callable[[], None]]) -> float:
    spans: list[tuple[float, float]] = []
    ready = threading.Barrier(len(calls))

    def work(call: Callable[[], None]) -> None:
        ready.wait()
        start = time.perf_counter()
        call()  # foreign code, which runs without the GIL
        spans.append((start, time.perf_counter()))

    others = [threading.Thread(target=work, args=(call,)) for call in calls[1:]]
    for thread in others:
        thread.start()
    work(calls[0])
    for thread in others:
        thread.join()
    return (max(end for _, end in spans) - min(start for start, _ in spans)) * 1e6

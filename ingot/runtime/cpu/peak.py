"""The machine's roofline, by a short measurement. In: a module's probe, a thread count. Out: peak
f32 FLOP/s, and the copy bandwidth of each cache and of main memory.

It takes tens of milliseconds, once per process and thread count. All threads run at once, so they
share memory bandwidth, clock and cores as in a run of the model. Called by loaded.py, and for
`ingot doctor --measure`.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from ingot.runtime.arrays import address_of
from ingot.runtime.cpu.loader import LoadedObject
from ingot.runtime.cpu.module import Probe
from ingot.runtime.profile import Level, Peak

ROUNDS = 5  # repetitions; the fastest counts
FLOPS = 1e8  # per thread and round; heuristic
MIN_COPIED_BYTES = 32 << 20  # per thread and round; heuristic
READ_CACHES = 4  # bytes read, in sizes of the last cache, so that few of them are cached; heuristic
MAX_READ_BYTES = 512 << 20  # of all threads together
MAX_ARRAY_BYTES = 128 << 20  # of one array of all threads together, for the memory bandwidth


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


def read_rate(probe: Probe, threads: int) -> float:
    """Bytes per µs that so many threads read from main memory, each from an array of its own."""
    code = LoadedObject(probe.code)
    pointer = ctypes.c_void_p
    read = ctypes.CFUNCTYPE(None, pointer, pointer, ctypes.c_int64)(code.address("probe_read"))
    total = min(MAX_READ_BYTES, READ_CACHES * max(probe.caches, default=MIN_COPIED_BYTES))
    size = max(4 << 20, total // threads) // 4096 * 4096
    pairs = [(np.zeros(4096, np.uint8), np.ones(size, np.uint8)) for _ in range(threads)]
    calls = [lambda a=a, b=b: read(address_of(a), address_of(b), size) for a, b in pairs]
    return threads * size / _best_us(calls)


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

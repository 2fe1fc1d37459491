"""Roofline probes: the machine's FMA rate and read bandwidth, timed in the same rounds as models.

FMA: independent chains of multiply-adds of the widest vectors, in registers. Bandwidth: reading an
array larger than any cache. Both are the loops of native/probe.py; no kernel of a model is used. A
model's time is compared with these, measured in the same minutes on as many threads.
`task.WORK_PER_CALL` has the FLOPs or bytes of one call. Loaded by child.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata

import numpy as np

from ingot import backends
from ingot.cli.measure import compile_probe
from ingot.cli.peers.task import FMA_FLOPS, READ_BYTES, Task
from ingot.runtime.arrays import address_of
from ingot.runtime.cpu.loader import LoadedObject
from ingot.runtime.cpu.native.probe import COPY_STEP


class _Probe:
    """One call per thread, all at once: a foreign call releases the GIL."""

    version = metadata.version("ingot")

    def __init__(self, task: Task):
        self._probe = compile_probe(backends.find("cpu").target("cpu"))
        self._code = LoadedObject(self._probe.code)
        self._pool = ThreadPoolExecutor(task.threads)
        self._calls = [self._call(task.threads) for _ in range(task.threads)]

    def _call(self, threads: int) -> Callable[[], None]:
        raise NotImplementedError

    def run(self) -> None:
        list(self._pool.map(lambda call: call(), self._calls))


class FmaProbe(_Probe):
    def _call(self, threads: int) -> Callable[[], None]:
        fma = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(
            self._code.address("probe_fma")
        )
        iterations = FMA_FLOPS // threads // self._probe.flops_per_iteration
        # a·½ + ½ stays between ½ and 1: no subnormal slows it down
        operands = np.full(4096, 0.5, np.float32)
        return lambda: fma(address_of(operands), iterations)


class BandwidthProbe(_Probe):
    def _call(self, threads: int) -> Callable[[], None]:
        pointer = ctypes.c_void_p
        read = ctypes.CFUNCTYPE(None, pointer, pointer, ctypes.c_int64)(
            self._code.address("probe_read")
        )
        size = READ_BYTES // threads // COPY_STEP * COPY_STEP
        array, sums = np.ones(size, np.uint8), np.zeros(COPY_STEP, np.uint8)
        return lambda: read(address_of(sums), address_of(array), size)

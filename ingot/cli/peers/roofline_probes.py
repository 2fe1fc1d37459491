"""Roofline probes: the machine's GEMM rate and read bandwidth, timed in the same rounds as models.

GEMM: Ingot's own, 1024 × 1024 × 1024 with constant, packed weights. Bandwidth: reading an array
larger than any cache. A model's time is compared with these, measured in the same minutes on as
many threads. `task.WORK_PER_CALL` has the FLOPs or bytes of one call. Loaded by child.py.
"""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata

import numpy as np

from ingot import api, backends, dtypes
from ingot.cli.measure import compile_probe
from ingot.cli.peers.task import GEMM_SIZE, READ_BYTES, Task
from ingot.graph.builder import GraphBuilder
from ingot.graph.types import tensor
from ingot.runtime.arrays import address_of
from ingot.runtime.cpu.loader import LoadedObject
from ingot.runtime.cpu.native.probe import COPY_STEP
from ingot.support import lazy


class GemmProbe:
    version = metadata.version("ingot")

    def __init__(self, task: Task):
        random, session = np.random.default_rng(0), api.make_session()
        g = GraphBuilder("gemm", session.store)
        x = g.input("x", tensor(dtypes.f32, GEMM_SIZE, GEMM_SIZE))
        weights = random.standard_normal((GEMM_SIZE, GEMM_SIZE)).astype(np.float32)
        graph = g.finish([g.add("matmul", [x, g.constant(weights)])])
        package = lazy.load("pipeline").run_stages(graph, session)
        self._exe = api.Executable(package, task.threads)
        self._x = random.standard_normal((GEMM_SIZE, GEMM_SIZE)).astype(np.float32)

    def run(self) -> None:
        self._exe(self._x)


class BandwidthProbe:
    version = metadata.version("ingot")

    def __init__(self, task: Task):
        target = backends.find("cpu").target("cpu")
        self._code = LoadedObject(compile_probe(target).code)
        pointer = ctypes.c_void_p
        read = ctypes.CFUNCTYPE(None, pointer, pointer, ctypes.c_int64)
        self._read = read(self._code.address("probe_read"))
        size = READ_BYTES // task.threads // COPY_STEP * COPY_STEP
        self._arrays = [np.ones(size, np.uint8) for _ in range(task.threads)]
        self._sums = [np.zeros(COPY_STEP, np.uint8) for _ in range(task.threads)]
        self._pool = ThreadPoolExecutor(task.threads)

    def run(self) -> None:
        """A foreign call releases the GIL, so the threads read at the same time."""
        list(self._pool.map(self._read_one, self._sums, self._arrays))

    def _read_one(self, sums: np.ndarray, array: np.ndarray) -> None:
        self._read(address_of(sums), address_of(array), array.nbytes)

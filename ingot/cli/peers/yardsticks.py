"""What the machine can do while a contest is held, in turns like everyone: Ingot's own product of
1024 × 1024 × 1024 with constant, packed weights, and reading an array that no cache holds.

A model is then a share of what was possible in the same minutes on as many threads. `task.WORK`
is what one call does, in flops or bytes. Loaded by child.py.
"""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata

import numpy as np

from ingot import api, dtypes
from ingot.cli.peers.task import READ_BYTES, SIDE, Task
from ingot.codegen import llvm_object
from ingot.codegen.llvm_probe import COPY_STEP, probe_text
from ingot.graph.builder import GraphBuilder
from ingot.graph.types import tensor
from ingot.runtime.arrays import address_of
from ingot.runtime.loader import LoadedObject
from ingot.support import lazy


class Product:
    version = metadata.version("ingot")

    def __init__(self, task: Task):
        random, session = np.random.default_rng(0), api.make_session()
        g = GraphBuilder("product", session.store)
        x = g.input("x", tensor(dtypes.f32, SIDE, SIDE))
        weights = random.standard_normal((SIDE, SIDE)).astype(np.float32)
        graph = g.finish([g.add("matmul", [x, g.constant(weights)])])
        package = lazy.load("pipeline").run_stages(graph, session)
        self._exe = api.Executable(package, task.threads)
        self._x = random.standard_normal((SIDE, SIDE)).astype(np.float32)

    def run(self) -> None:
        self._exe(self._x)


class Reading:
    version = metadata.version("ingot")

    def __init__(self, task: Task):
        target = lazy.load("backends.cpu").target("cpu")
        machine = (target.triple, target.cpu, target.feature_string)
        self._code = LoadedObject(llvm_object.compile_text(probe_text(target), *machine, 3))
        pointer = ctypes.c_void_p
        read = ctypes.CFUNCTYPE(None, pointer, pointer, ctypes.c_int64)
        self._read = read(self._code.address("probe_read"))
        share = READ_BYTES // task.threads // COPY_STEP * COPY_STEP
        self._parts = [np.ones(share, np.uint8) for _ in range(task.threads)]
        self._sums = [np.zeros(COPY_STEP, np.uint8) for _ in range(task.threads)]
        self._crew = ThreadPoolExecutor(task.threads)

    def run(self) -> None:
        """A foreign call frees the interpreter's lock, so threads read at the same time."""
        list(self._crew.map(self._one, self._sums, self._parts))

    def _one(self, sums: np.ndarray, part: np.ndarray) -> None:
        self._read(address_of(sums), address_of(part), part.nbytes)

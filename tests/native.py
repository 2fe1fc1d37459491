"""Kernels as machine code for tests: many in one object, run on one thread or several.

    batch = Batch([kernel, …])           legalized for this machine, compiled at a low level
    batch.run(0, arrays, sizes, threads=2)

What the runtime does for programs is done here by hand for single kernels, so that thousands of
small ones can be tried: nests of a kernel run one after the other, iterations of a parallel loop
are split as a launch does it, temporaries begin as NaN or poison.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ingot.arith import expr as arith
from ingot.backends.cpu import BACKEND
from ingot.codegen import llvm_object
from ingot.codegen.llvm_kernel import print_kernel
from ingot.legalize import legalize_kernel
from ingot.legalize.program import parallel_extent
from ingot.legalize.split_kernels import SplitKernel, split_kernel
from ingot.loops import ir
from ingot.loops.frame import scratch_layout
from ingot.loops.interp_memory import poisoned
from ingot.runtime.cpu.loader import LoadedObject
from ingot.target import Target

STACK_BYTES = 1 << 14
HOST = BACKEND.target("cpu")


def legal_kernels(kernel: ir.Kernel, target: Target = HOST):
    """The nests of a scheduled kernel, each legal, and the buffers between them."""
    split = split_kernel(kernel)
    legal = tuple(legalize_kernel(k, target) for k in split.kernels)
    return SplitKernel(legal, split.temporaries)


class Batch:
    def __init__(self, kernels: Sequence[ir.Kernel], level: int = 0, target: Target = HOST):
        self.split = [legal_kernels(k, target) for k in kernels]
        self.text = _module(self.split)
        code = llvm_object.compile_text(
            self.text, target.triple, target.cpu, target.feature_string, level
        )
        self.can_run = not BACKEND.why_not_here(target)
        self.object = LoadedObject(code) if self.can_run else None

    def run(
        self,
        number: int,
        arrays: Mapping[str, np.ndarray],
        sizes: Mapping[str, int],
        threads: int = 1,
    ) -> None:
        """Run kernel `number` on arrays by name, written in place."""
        assert self.object is not None, "this machine cannot run the target's code"
        split = self.split[number]
        arrays_by_name = dict(arrays)
        for b in split.temporaries:
            shape = tuple(arith.evaluate(d, sizes) for d in b.shape)
            arrays_by_name[b.name] = poisoned(b.dtype, shape).flat
        for n, kernel in enumerate(split.kernels):
            address = self.object.address(_symbol(number, n))
            _launch(address, kernel, arrays_by_name, sizes, threads)


def _symbol(number: int, nest: int) -> str:
    return f"kernel_{number}_{nest}"


def _module(all_split: Sequence[SplitKernel]) -> str:
    """One module of all kernels; what several declare is declared once."""
    declared: dict[str, None] = {}
    bodies: list[str] = []
    for number, split in enumerate(all_split):
        for n, kernel in enumerate(split.kernels):
            text = print_kernel(kernel, _symbol(number, n), STACK_BYTES)
            for line in text.splitlines():
                if line.startswith("declare"):
                    declared[line] = None
                else:
                    bodies.append(line)
    return "\n".join([*bodies, *declared]) + "\n"


def _launch(
    address: int,
    kernel: ir.Kernel,
    arrays_by_name: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    threads: int,
) -> None:
    pointers = [ctypes.c_void_p(arrays_by_name[p.name].ctypes.data) for p in kernel.params]
    numbers = [ctypes.c_int64(sizes[s.name]) for s in kernel.sizes]
    scratch_bytes = arith.evaluate(scratch_layout(kernel, STACK_BYTES).size_bytes, sizes)
    extent = arith.evaluate(parallel_extent(kernel), sizes)
    types = [ctypes.c_void_p] * len(pointers) + [ctypes.c_int64] * (len(numbers) + 2)
    function = ctypes.CFUNCTYPE(ctypes.c_int32, *types, ctypes.c_void_p, ctypes.c_void_p)(address)

    def run_range(thread: int) -> int:
        low, high = extent * thread // threads, extent * (thread + 1) // threads
        if low >= high:
            return 0
        scratch = np.full(scratch_bytes + 64, 0x5A, np.uint8)
        error = np.zeros(8, np.int64)
        aligned = scratch.ctypes.data + -scratch.ctypes.data % 64
        return function(*pointers, *numbers, low, high, aligned, error.ctypes.data)

    if threads == 1 or extent <= 1:
        codes = [run_range(t) for t in range(threads)]
    else:
        codes = list(_pool(threads).map(run_range, range(threads)))
    assert not any(codes), f"kernel {kernel.name} failed"


_pools: dict[int, ThreadPoolExecutor] = {}


def _pool(threads: int) -> ThreadPoolExecutor:
    if threads not in _pools:
        _pools[threads] = ThreadPoolExecutor(threads)
    return _pools[threads]

"""One math function as machine code over arrays: formula → default schedule → legalize → LLVM.

In: a function of ir.MATH, an element type. Out: a callable on numpy arrays, and the assembly it
runs. Used by the suites in this folder and by benchmarks/math_functions.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from ingot.arith import expr as arith
from ingot.backends.cpu import BACKEND
from ingot.codegen import llvm_object
from ingot.codegen.llvm_kernel import print_kernel
from ingot.dtypes import DType
from ingot.legalize import legalize_kernel
from ingot.legalize.split_kernels import split_kernel
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.runtime.cpu.loader import LoadedObject
from ingot.schedule.default import schedule_kernel
from ingot.target import Target

SYMBOL = "kernel"
LEVEL = 3
STACK_BYTES = 1 << 16


def host() -> Target:
    return BACKEND.target("cpu")


def kernel_of(fn: str, dtype: DType, count: int, target: Target) -> ir.Kernel:
    """y[i] = fn(x0[i], …) for `count` elements, legal for the target."""
    b = Build(fn)
    args = [b.param(f"x{n}", dtype, (count,)) for n in range(ir.MATH[fn])]
    y = b.compute("y", (count,), lambda i: ir.Math(fn, tuple(x[i] for x in args)))
    scheduled = schedule_kernel(b.finish([y]), target, "elementwise").finished()
    (nest,) = split_kernel(scheduled).kernels
    return legalize_kernel(nest, target)


class Native:
    """`fn` of `count` elements at a time; shorter arrays are padded with ones."""

    def __init__(self, fn: str, dtype: DType, count: int, target: Target | None = None):
        self.target = target or host()
        self.dtype, self.count = dtype, count
        self.kernel = kernel_of(fn, dtype, count, self.target)
        self.text = print_kernel(self.kernel, SYMBOL, STACK_BYTES)
        self._object = LoadedObject(llvm_object.compile_text(self.text, *self._machine()))
        pointers = [ctypes.c_void_p] * len(self.kernel.params)
        signature = ctypes.CFUNCTYPE(
            ctypes.c_int32, *pointers, *[ctypes.c_int64] * 2, *[ctypes.c_void_p] * 2
        )
        self._call = signature(self._object.address(SYMBOL))
        loop = self.kernel.body
        is_shared = isinstance(loop, ir.For) and loop.kind is ir.LoopKind.PARALLEL
        self._turns = arith.evaluate(loop.stop, {}) if is_shared else 0  # type: ignore[union-attr]

    def _machine(self) -> tuple[str, str, str, int]:
        return self.target.triple, self.target.cpu, self.target.feature_string, LEVEL

    def assembly(self) -> str:
        return llvm_object.assembly(self.text, *self._machine())

    def run(self, out: np.ndarray, *arrays: np.ndarray) -> None:
        """Whole contiguous arrays of `count` elements; nothing is checked or copied."""
        assert self.bound(out, *arrays)() == 0

    def bound(self, out: np.ndarray, *arrays: np.ndarray) -> Callable[[], int]:
        """A call on these very arrays, with everything but the call done before."""
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, out)]
        first, last = ctypes.c_int64(0), ctypes.c_int64(self._turns)
        needed = (self, out, arrays)  # the code and the memory live as long as the call may come

        def call() -> int:
            return needed[0]._call(*pointers, first, last, None, None)

        return call

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        """Arrays of any length."""
        length = len(arrays[0])
        result = np.empty(-(-length // self.count) * self.count, self.dtype.numpy)
        padded = [np.ones_like(result) for _ in arrays]
        for whole, given in zip(padded, arrays):
            whole[:length] = given
        for start in range(0, len(result), self.count):
            piece = slice(start, start + self.count)
            self.run(result[piece], *(p[piece] for p in padded))
        return result[:length]

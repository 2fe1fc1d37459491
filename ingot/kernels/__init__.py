"""The API of the kernel language: write a kernel as a Python function, schedule it, call it.

    @ingot.kernel                   Python source → KernelFunction         define.py
    kernel(A, B, C)                 run on numpy arrays and torch tensors  function.py, arguments.py
    ingot.Schedule(kernel)          → .build(), a faster equal kernel      function.py
    ingot.compile(m, kernels={…})   a kernel as an operator of a model     hooks.py

A kernel is compiled as a program of one launch, by the pipeline's stages from `split_kernels` on
(build.py). Only the user's own schedule is applied to it.
"""

from ingot.kernels.define import kernel, parse
from ingot.kernels.function import KernelFunction, Schedule, wrap

__all__ = ["KernelFunction", "Schedule", "kernel", "parse", "wrap"]

"""Ingot: a deep-learning compiler. A trained model goes in, one native function comes out.

import ingot
exe = ingot.compile("model.onnx")
outputs = exe(x)
"""

from ingot.api import compile
from ingot.kernels import KernelFunction, Schedule, kernel
from ingot.runtime.executable import Executable
from ingot.support.errors import IngotError

__version__ = "0.1.0"
__all__ = [
    "Executable",
    "IngotError",
    "KernelFunction",
    "Schedule",
    "__version__",
    "compile",
    "kernel",
]

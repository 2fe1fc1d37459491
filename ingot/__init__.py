"""Ingot: a deep-learning compiler. A trained model goes in, one native function comes out.

    import ingot
    exe = ingot.compile("model.onnx")
    outputs = exe(x)

The kernel language (`ingot.kernel`, `ingot.Schedule`) is loaded when it is first used, so that
`import ingot` stays light.
"""

from typing import TYPE_CHECKING, Any

from ingot.api import compile, load
from ingot.runtime.executable import Executable
from ingot.support import lazy
from ingot.support.errors import IngotError
from ingot.support.options import Options

if TYPE_CHECKING:
    from ingot import kernels
    from ingot.kernels import KernelFunction, Schedule, kernel

__version__ = "0.1.0"
__all__ = [
    "Executable",
    "IngotError",
    "KernelFunction",
    "Options",
    "Schedule",
    "__version__",
    "compile",
    "kernel",
    "kernels",
    "load",
]


def __getattr__(name: str) -> Any:
    if name == "kernels":
        return lazy.load("kernels")
    if name in ("KernelFunction", "Schedule", "kernel"):
        return getattr(lazy.load("kernels"), name)
    raise AttributeError(f"module 'ingot' has no attribute {name!r}")

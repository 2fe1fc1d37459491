"""Ingot: a deep-learning compiler. A trained model goes in, one native function comes out.

    import ingot
    exe = ingot.compile("model.onnx")
    outputs = exe(x)

What is public is loaded when it is first used: code-generation workers and the command line start
without numpy.
"""

from typing import TYPE_CHECKING, Any

from ingot.support import lazy
from ingot.support.identity import VERSION as __version__

if TYPE_CHECKING:
    from ingot import kernels
    from ingot.api import compile, load
    from ingot.inspect.verify import verify
    from ingot.kernels import KernelFunction, Schedule, kernel
    from ingot.runtime.executable import Executable
    from ingot.runtime.state import State
    from ingot.support.errors import IngotError
    from ingot.support.options import Options

__all__ = [
    "Executable",
    "IngotError",
    "KernelFunction",
    "Options",
    "Schedule",
    "State",
    "__version__",
    "compile",
    "kernel",
    "kernels",
    "load",
    "verify",
]


if not TYPE_CHECKING:  # a type checker would take any name for one of them

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'ingot' has no attribute {name!r}")
        value = globals()[name] = lazy.load(f"ingot.{name}")
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

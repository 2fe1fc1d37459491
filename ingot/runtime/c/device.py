"""The C device: host memory, and code that the system's C compiler makes (compiler.py)."""

from __future__ import annotations

from ingot.runtime.c import compiler
from ingot.runtime.c.loaded import LoadedCModule
from ingot.runtime.c.module import DEVICE as NAME
from ingot.runtime.cpu.device import CpuDevice
from ingot.runtime.package import Package


class CDevice(CpuDevice):
    """Its arrays are the CPU's; one thread."""

    name = NAME
    default_threads = 1

    def why_not(self, package: Package) -> str:
        return compiler.why_not()

    def load(self, package: Package) -> LoadedCModule:  # type: ignore[override]
        return LoadedCModule(package)


DEVICE = CDevice()

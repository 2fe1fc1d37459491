"""The CPU as a device: its arrays are numpy's, its modules are objects (module.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ingot.runtime import arrays
from ingot.runtime.cpu import host
from ingot.runtime.cpu.loaded import LoadedCpuModule
from ingot.runtime.cpu.module import read
from ingot.runtime.cpu.pool import usable_cores
from ingot.runtime.package import HOST, Package
from ingot.runtime.sizes import Shape
from ingot.support import options


class CpuDevice:
    name = HOST

    @property
    def default_threads(self) -> int:
        return options.current().threads or usable_cores()

    def why_not(self, package: Package) -> str:
        module = read(package)
        return host.why_not(module.architecture, module.features)

    def load(self, package: Package) -> LoadedCpuModule:
        return LoadedCpuModule(package)

    def allocate(self, shape: Shape, dtype: np.dtype) -> np.ndarray:
        return np.empty(shape, dtype)

    def copy(self, to: np.ndarray, source: np.ndarray) -> None:
        np.copyto(to, source, casting="no")

    def from_dlpack(self, value: Any, where: str) -> np.ndarray:
        return arrays.from_dlpack(value, where)

    def synchronize(self) -> None:
        """Nothing to wait for: a run returns when it is done."""


DEVICE = CpuDevice()

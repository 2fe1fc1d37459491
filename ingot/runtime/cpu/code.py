"""The loaded objects of a package: addresses of the entry and of the table of kernels.

In: a CpuModule. Out: `Code`. Every context refers to it, so the code stays in memory while a call
may run it.
"""

from __future__ import annotations

import ctypes

from ingot.runtime.cpu.loader import LoadedObject
from ingot.runtime.cpu.module import CpuModule
from ingot.runtime.cpu.services import services
from ingot.support.abi import ENTRY, KERNEL


class Code:
    def __init__(self, module: CpuModule):
        self.services = services(module.support)
        entry, kernels = LoadedObject(module.entry), [LoadedObject(x) for x in module.kernels]
        self.objects = [entry, *kernels]
        self.entry = entry.address(ENTRY)
        self._table = (ctypes.c_int64 * len(kernels))(*(code.address(KERNEL) for code in kernels))
        self.kernels = ctypes.addressof(self._table)

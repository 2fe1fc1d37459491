"""The table of services that emitted code calls, and the loaded support object that has them.

There is one for each distinct support object. It is never freed: worker threads run its code.
Emitted code names no function of the C library; it calls them through addresses in this table.
"""

from __future__ import annotations

import ctypes
import platform

from ingot.runtime.cpu.loader import LoadedObject
from ingot.runtime.host_calls import host_service
from ingot.support.abi import ALIGNMENT, SERVICES, SERVICES_BYTES, SYSTEM

# number of the futex system call in Linux, by machine
_FUTEX_NUMBER = {"x86_64": 202, "aarch64": 98, "arm64": 98, "riscv64": 98}
_MAX_BYTES = 1 << 62  # a larger size, rounded up, would not fit size_t
_libc = ctypes.CDLL(None)
_libc.aligned_alloc.restype = ctypes.c_void_p
_libc.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]


def aligned_alloc(size: int) -> int:
    """Memory from the C library, aligned to ALIGNMENT; MemoryError if it has none."""
    rounded = (size + ALIGNMENT) & -ALIGNMENT
    address = _libc.aligned_alloc(ALIGNMENT, rounded) if 0 <= size < _MAX_BYTES else None
    if not address:
        raise MemoryError(f"{size} bytes")
    return address


def permanent(size: int) -> int:
    """Zeroed memory that is never freed: native threads may read it until the process ends."""
    address = aligned_alloc(size)
    ctypes.memset(address, 0, size)
    return address


def free(address: int | None) -> None:
    _libc.free(address)


class Services:
    """The table and the functions of the support object, as ctypes callables."""

    def __init__(self, support_object: bytes):
        self._loaded = LoadedObject(support_object)
        self.address = permanent(SERVICES_BYTES)
        for name in ("park", "wake", "alloc", "grow"):
            self._set(SERVICES[name], self._loaded.address(name))
        for name in ("syscall", "aligned_alloc", "free", "sched_yield"):
            function = ctypes.cast(getattr(_libc, name), ctypes.c_void_p).value
            assert function is not None
            self._set(SYSTEM[name], function)
        host = ctypes.cast(host_service, ctypes.c_void_p).value
        assert host is not None
        self._set(SERVICES["host"], host)
        self._set(SYSTEM["futex"], _FUTEX_NUMBER[platform.machine()])
        pointer = ctypes.c_void_p
        self.pool_run = self._function("pool_run", ctypes.c_int32, pointer)
        self.worker_main = self._function("worker_main", None, pointer)
        self.worker_stop = self._function("worker_stop", ctypes.c_int32, pointer)
        self.cycles = self._function("cycles", ctypes.c_int64)
        self.fast_path = self._loaded.address("fast_path")
        self.pool_add = self._function("pool_add", None, pointer, pointer)

    def _set(self, offset: int, value: int) -> None:
        ctypes.c_int64.from_address(self.address + offset).value = value

    def _function(self, name: str, *types):
        return ctypes.CFUNCTYPE(*types)(self._loaded.address(name))


_known: dict[bytes, Services] = {}


def services(support_object: bytes) -> Services:
    """The services of a support object. Without a lock, since a fork could leave it held: two
    threads may both load the object, and one copy is kept."""
    found = _known.get(support_object)
    return found or _known.setdefault(support_object, Services(support_object))

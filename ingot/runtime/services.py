"""The services table that emitted code calls through, and the loaded support object behind it.

One per process, made when the first executable is. Functions of the C library are reached by their
addresses; emitted code itself names none of them.
"""

from __future__ import annotations

import ctypes
import platform
import threading

from ingot.runtime.loader import LoadedObject
from ingot.support.abi import SERVICES, SERVICES_BYTES, SYSTEM

_FUTEX_NUMBER = {"x86_64": 202, "aarch64": 98, "arm64": 98, "riscv64": 98}
_libc = ctypes.CDLL(None)
_libc.aligned_alloc.restype = ctypes.c_void_p
_libc.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]


def aligned_alloc(size: int) -> int:
    """64-byte aligned memory from the C library; MemoryError if there is none."""
    address = _libc.aligned_alloc(64, (size + 64) & -64)
    if not address:
        raise MemoryError(f"{size} bytes")
    return address


def free(address: int | None) -> None:
    _libc.free(address)


class Services:
    """The table and the functions; `gang_run` and `worker_main` are ctypes callables."""

    def __init__(self, support_object: bytes):
        self._loaded = LoadedObject(support_object)
        self._table = (ctypes.c_int64 * (SERVICES_BYTES // 8))()
        for name in ("park", "wake", "alloc", "grow"):
            self._set(SERVICES[name], self._loaded.address(name))
        for name in ("syscall", "aligned_alloc", "free"):
            function = ctypes.cast(getattr(_libc, name), ctypes.c_void_p).value
            assert function is not None
            self._set(SYSTEM[name], function)
        self._set(SYSTEM["futex"], _FUTEX_NUMBER[platform.machine()])
        self.address = ctypes.addressof(self._table)
        self.wake_address = self._loaded.address("wake")
        call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
        self.gang_run = call(self._loaded.address("gang_run"))
        self.worker_main = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
            self._loaded.address("worker_main")
        )

    def _set(self, offset: int, value: int) -> None:
        self._table[offset // 8] = value


_lock = threading.Lock()
_current: Services | None = None


def services(support_object: bytes) -> Services:
    """The process's services; the first caller's support object is kept for good."""
    global _current
    with _lock:
        if _current is None:
            _current = Services(support_object)
        return _current

"""The object loader: ELF objects → callable addresses, without a linker or LLVM.

The relocated image (image.py) goes into one private mapping, which is then made executable or
read-only (W^X). The mapping is freed with the `LoadedObject`.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from ingot.runtime.cpu import host
from ingot.runtime.cpu.image import Image
from ingot.support.errors import IngotError

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_FAILED = ctypes.c_void_p(-1).value
# Machines whose instruction cache is coherent with stores; on others it must be invalidated.
_COHERENT = ("x86_64",)


class LoadedObject:
    """One object in memory. It must stay alive while any of its code may run."""

    _base = 0

    def __init__(self, data: bytes):
        self._image = Image(data)
        if self._image.machine != host.architecture():
            raise IngotError(
                "codegen-failed",
                f"this machine cannot run {self._image.machine} code",
                hint="export the model instead of running it here",
            )
        self._size = self._image.size
        self._base = _map(self._size)
        code = self._image.code_bytes
        image = self._image.relocated(self._base)
        ctypes.memmove(self._base, (ctypes.c_char * self._size).from_buffer(image), self._size)
        if self._image.machine not in _COHERENT:
            _clear_cache()(self._base, self._base + code)
        _protect(self._base, code, mmap.PROT_READ | mmap.PROT_EXEC)
        _protect(self._base + code, self._size - code, mmap.PROT_READ)

    def address(self, symbol: str) -> int:
        return self._base + self._image.offset(symbol)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # at exit, daemon threads may still run this code, and module globals may be None (hence
        # the default argument); the system frees the memory then
        if self._base and not is_finalizing():
            _libc.munmap(self._base, self._size)


@cache
def _clear_cache() -> Any:
    """The compiler runtime's function for code that was just written: clean the data cache,
    invalidate the instruction cache."""
    try:
        function = ctypes.CDLL("libgcc_s.so.1").__clear_cache
    except (OSError, AttributeError) as error:
        raise IngotError(
            "codegen-failed",
            "the instruction cache cannot be invalidated for new code",
            why=str(error),
            hint="install libgcc_s.so.1 (Debian: libgcc-s1)",
        ) from error
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    function.restype = None
    return function


def _map(size: int) -> int:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    base = _libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if base == _FAILED:
        raise IngotError("codegen-failed", f"mmap of {size} bytes for loaded code failed")
    return base


def _protect(address: int, size: int, protection: int) -> None:
    if size and _libc.mprotect(address, size, protection):
        raise IngotError(
            "codegen-failed",
            f"mprotect of loaded code failed (errno {ctypes.get_errno()})",
            hint="this system may forbid executable memory: export the model instead",
        )

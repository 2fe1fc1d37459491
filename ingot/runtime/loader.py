"""Objects → callable addresses. Our own loader: closed objects need no linker and no LLVM.

Allocated sections are laid out in one private mapping, relocated while it is writeable, then made
executable and read-only: never both writeable and executable. Freed with the `LoadedObject`.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Callable

from ingot.runtime.elf import SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS, ObjectFile, Relocation
from ingot.support.errors import IngotError

_libc = ctypes.CDLL(None, use_errno=True)
_PAGE = mmap.PAGESIZE


def _page_up(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


class LoadedObject:
    """One object in memory. Keep it alive while any of its code may run."""

    def __init__(self, data: bytes):
        self._object = ObjectFile(data)
        self._refuse_open_code()
        self._offsets, size = self._layout()
        self._map = mmap.mmap(-1, max(size, _PAGE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._fill(data)
        for relocation in self._object.relocations():
            if relocation.section in self._offsets:
                self._relocate(relocation)
        self._protect()

    def address(self, symbol: str) -> int:
        for found in self._object.symbols:
            if found.name == symbol and found.section in self._offsets:
                return self._base + self._offsets[found.section] + found.value
        raise IngotError("codegen-failed", f"the object has no symbol {symbol}")

    def _refuse_open_code(self) -> None:
        missing, mutable = self._object.undefined(), self._object.mutable_sections()
        if missing:
            raise IngotError(
                "codegen-failed", f"the object is not closed: it needs {', '.join(missing)}"
            )
        if mutable:
            raise IngotError("codegen-failed", f"the object has mutable data in {mutable}")
        if self._object.machine not in _APPLY:
            raise IngotError(
                "codegen-failed",
                f"this loader cannot relocate {self._object.machine} code",
                hint="export the model instead of running it here",
            )

    def _layout(self) -> tuple[dict[int, int], int]:
        """Code first, then read-only data on pages of its own."""
        offsets: dict[int, int] = {}
        size = 0
        for wants_code in (True, False):
            for index, section in enumerate(self._object.sections):
                is_code = bool(section.flags & SHF_EXECINSTR)
                if section.flags & SHF_ALLOC and is_code == wants_code and section.size:
                    size = -(-size // section.align) * section.align
                    offsets[index] = size
                    size += section.size
            size = _page_up(size)
            if wants_code:
                self._code_bytes = size
        return offsets, size

    def _fill(self, data: bytes) -> None:
        for index, offset in self._offsets.items():
            section = self._object.sections[index]
            if section.kind != SHT_NOBITS:
                self._map[offset : offset + section.size] = data[
                    section.offset : section.offset + section.size
                ]

    def _relocate(self, r: Relocation) -> None:
        symbol = self._object.symbols[r.symbol]
        place = self._offsets[r.section] + r.offset
        target = self._base + self._offsets[symbol.section] + symbol.value + r.addend
        apply = _APPLY[self._object.machine].get(r.kind)
        if apply is None:
            raise IngotError("codegen-failed", f"relocation kind {r.kind} is unknown to the loader")
        patch = apply(target, self._base + place)
        self._map[place : place + len(patch)] = patch

    def _protect(self) -> None:
        self._set(self._base, self._code_bytes, mmap.PROT_READ | mmap.PROT_EXEC)
        rest = len(self._map) - self._code_bytes
        self._set(self._base + self._code_bytes, rest, mmap.PROT_READ)

    def _set(self, address: int, size: int, protection: int) -> None:
        if size > 0 and _libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), protection):
            raise IngotError(
                "codegen-failed",
                f"the system refused to protect loaded code (errno {ctypes.get_errno()})",
                hint="executable memory may be forbidden here: export the model instead",
            )


def _relative(target: int, place: int) -> bytes:
    return struct.pack("<i", target - place)


def _absolute(target: int, place: int) -> bytes:
    return struct.pack("<Q", target)


Patch = Callable[[int, int], bytes]
# R_X86_64_64, PC32, PLT32: all that position-independent closed code uses
_APPLY: dict[str, dict[int, Patch]] = {"x86-64": {1: _absolute, 2: _relative, 4: _relative}}

"""The object loader: ELF objects → callable addresses, without a linker or LLVM.

Allocated sections go into one private mapping, are relocated while it is writeable, then made
executable or read-only (W^X). The mapping is freed with the `LoadedObject`.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass

from ingot.runtime.cpu.elf import SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS, ObjectFile, Relocation
from ingot.support.errors import IngotError

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_FAILED = ctypes.c_void_p(-1).value
_PAGE = mmap.PAGESIZE
_MAX_BYTES = 1 << 30  # far more than any kernel's code, and within reach of 32-bit relocations


def _up(size: int, align: int) -> int:
    return -(-size // align) * align


class LoadedObject:
    """One object in memory. It must stay alive while any of its code may run."""

    _base = 0

    def __init__(self, data: bytes):
        self._object = ObjectFile(data)
        self._machine = self._checked_machine()
        self._offsets: dict[int, int] = {}  # section → offset
        self._got: dict[int, int] = {}  # global offset table: symbol → offset of its entry
        self._code_bytes = self._lay_out_code()
        self._size = self._lay_out_data(self._code_bytes)
        self._base = _map(self._size)
        self._fill(data)
        for relocation in self._object.relocations:
            if relocation.section in self._offsets:
                self._relocate(relocation)
        self._protect()

    def address(self, symbol: str) -> int:
        for found in self._object.symbols:
            if found.name == symbol and found.section in self._offsets:
                return self._base + self._offsets[found.section] + found.value
        raise IngotError("codegen-failed", f"the object has no symbol {symbol}")

    def _checked_machine(self) -> Machine:
        missing, mutable = self._object.undefined(), self._object.mutable_sections()
        if missing:
            raise IngotError(
                "codegen-failed", f"the object has undefined symbols: {', '.join(missing)}"
            )
        if mutable:
            raise IngotError(
                "codegen-failed", f"the object has writeable data in {', '.join(mutable)}"
            )
        if self._object.machine not in _MACHINES:
            raise IngotError(
                "codegen-failed",
                f"this loader cannot relocate {self._object.machine} code",
                hint="export the model instead of running it here",
            )
        return _MACHINES[self._object.machine]

    def _lay_out_code(self) -> int:
        return _up(self._lay_out(0, is_code=True), _PAGE)

    def _lay_out_data(self, start: int) -> int:
        """Read-only data, on pages of its own, then the global offset table."""
        size = _up(self._lay_out(start, is_code=False), 8)
        for r in self._object.relocations:
            if r.kind in self._machine.through_got and r.symbol not in self._got:
                self._got[r.symbol] = size
                size += 8
        return max(_up(size, _PAGE), _PAGE)

    def _lay_out(self, size: int, is_code: bool) -> int:
        for index, section in enumerate(self._object.sections):
            if section.flags & SHF_ALLOC and bool(section.flags & SHF_EXECINSTR) == is_code:
                self._offsets[index] = _up(size, section.align)
                size = self._offsets[index] + section.size
        return size

    def _fill(self, data: bytes) -> None:
        for index, offset in self._offsets.items():
            section = self._object.sections[index]
            if section.kind != SHT_NOBITS:
                self._write(offset, data[section.offset : section.offset + section.size])
        for number, offset in self._got.items():
            self._write(offset, _absolute(self._target(number), 0))

    def _target(self, number: int) -> int:
        symbol = self._object.symbols[number] if number < len(self._object.symbols) else None
        if symbol is None or symbol.section not in self._offsets:
            raise _damaged(f"symbol {number} is in no loaded section")
        return self._base + self._offsets[symbol.section] + symbol.value

    def _relocate(self, r: Relocation) -> None:
        place = self._offsets[r.section] + r.offset
        if r.symbol in self._got and r.kind in self._machine.through_got:
            target = self._base + self._got[r.symbol] + r.addend
            self._write(place, _relative(target, self._base + place))
            return
        patch = self._machine.patches.get(r.kind)
        if patch is None:
            raise IngotError("codegen-failed", f"the loader has no relocation type {r.kind}")
        self._write(place, patch(self._target(r.symbol) + r.addend, self._base + place))

    def _write(self, offset: int, data: bytes) -> None:
        if offset + len(data) > self._size:
            raise _damaged("a relocation is outside the mapping")
        ctypes.memmove(self._base + offset, data, len(data))

    def _protect(self) -> None:
        code, rest = self._code_bytes, self._size - self._code_bytes
        _protect(self._base, code, mmap.PROT_READ | mmap.PROT_EXEC)
        _protect(self._base + code, rest, mmap.PROT_READ)

    def __del__(self) -> None:
        # at exit, daemon threads may still run this code; the system frees it then
        if self._base and not sys.is_finalizing():
            _libc.munmap(self._base, self._size)


def _damaged(why: str) -> IngotError:
    return IngotError("codegen-failed", "the object is damaged", why=why)


def _map(size: int) -> int:
    if size > _MAX_BYTES:
        raise _damaged(f"it would take {size} bytes")
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


Patch = Callable[[int, int], bytes]  # target, place


def _relative(target: int, place: int) -> bytes:
    return _pack("<i", target - place)


def _relative_wide(target: int, place: int) -> bytes:
    return _pack("<q", target - place)


def _absolute(target: int, place: int) -> bytes:
    return _pack("<Q", target)


def _pack(form: str, value: int) -> bytes:
    try:
        return struct.pack(form, value)
    except struct.error as error:
        raise _damaged("a relocation is out of range") from error


@dataclass(frozen=True)
class Machine:
    """ELF relocation types of position-independent closed code. Those in `through_got` refer to the
    symbol's entry in the global offset table."""

    patches: dict[int, Patch]
    through_got: frozenset[int]


_MACHINES = {
    "x86-64": Machine(
        # R_X86_64_64, PC32, PLT32, PC64; GOTPCREL, GOTPCRELX, REX_GOTPCRELX
        {1: _absolute, 2: _relative, 4: _relative, 24: _relative_wide},
        frozenset({9, 41, 42}),
    )
}

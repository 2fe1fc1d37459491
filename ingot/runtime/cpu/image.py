"""The image of an object: its sections laid out, and relocated for an address. Used by loader.py.

    image = Image(data)
    image.size, image.code_bytes       code comes first, read-only data on pages of its own
    image.relocated(base)              the bytes to put there
    image.offset(symbol)

Nothing here runs the code, so an object of any machine with known relocations has an image.
"""

from __future__ import annotations

import mmap
import struct

from ingot.runtime.cpu.elf import SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS, ObjectFile, RelocationEntry
from ingot.runtime.cpu.relocations import TYPES, damaged
from ingot.support.errors import IngotError

_PAGE = mmap.PAGESIZE
_MAX_BYTES = 1 << 30  # far more than any kernel's code, and within reach of 32-bit relocations


def _up(size: int, align: int) -> int:
    return -(-size // align) * align


class Image:
    def __init__(self, data: bytes):
        self._object = ObjectFile(data)
        self._types = self._checked_types()
        self._offsets: dict[int, int] = {}  # section → offset
        self._got: dict[int, int] = {}  # global offset table: symbol → offset of its entry
        self.code_bytes = _up(self._lay_out(0, is_code=True), _PAGE)
        self.size = self._lay_out_data(self.code_bytes)
        if self.size > _MAX_BYTES:
            raise damaged(f"it would take {self.size} bytes")

    @property
    def machine(self) -> str:
        return self._object.machine

    def offset(self, symbol: str) -> int:
        for found in self._object.symbols:
            if found.name == symbol and found.section in self._offsets:
                return self._offsets[found.section] + found.value
        raise IngotError("codegen-failed", f"the object has no symbol {symbol}")

    def relocated(self, base: int) -> bytearray:
        """The image for the address `base`."""
        image = bytearray(self.size)
        for index, offset in self._offsets.items():
            section = self._object.sections[index]
            if section.kind != SHT_NOBITS:
                data = self._object.data[section.offset : section.offset + section.size]
                image[offset : offset + section.size] = data
        for number, offset in self._got.items():
            struct.pack_into("<Q", image, offset, base + self._target(number))
        for entry in self._object.relocations:
            if entry.section in self._offsets:
                self._relocate(image, base, entry)
        return image

    def _checked_types(self) -> dict:
        missing, mutable = self._object.undefined(), self._object.mutable_sections()
        if missing:
            raise IngotError(
                "codegen-failed", f"the object has undefined symbols: {', '.join(missing)}"
            )
        if mutable:
            raise IngotError(
                "codegen-failed", f"the object has writeable data in {', '.join(mutable)}"
            )
        return TYPES.get(self._object.machine, {})

    def _lay_out_data(self, start: int) -> int:
        """Read-only data, then the global offset table."""
        size = _up(self._lay_out(start, is_code=False), 8)
        for entry in self._object.relocations:
            known = self._types.get(entry.kind)
            if known is not None and known.is_through_got and entry.symbol not in self._got:
                self._got[entry.symbol] = size
                size += 8
        return max(_up(size, _PAGE), _PAGE)

    def _lay_out(self, size: int, is_code: bool) -> int:
        for index, section in enumerate(self._object.sections):
            if section.flags & SHF_ALLOC and bool(section.flags & SHF_EXECINSTR) == is_code:
                self._offsets[index] = _up(size, section.align)
                size = self._offsets[index] + section.size
        return size

    def _target(self, number: int) -> int:
        symbol = self._object.symbols[number] if number < len(self._object.symbols) else None
        if symbol is None or symbol.section not in self._offsets:
            raise damaged(f"symbol {number} is in no loaded section")
        return self._offsets[symbol.section] + symbol.value

    def _relocate(self, image: bytearray, base: int, entry: RelocationEntry) -> None:
        known = self._types.get(entry.kind)
        if known is None:
            raise IngotError(
                "codegen-failed",
                f"the loader has no relocation type {entry.kind} of {self._object.machine}",
            )
        at = self._offsets[entry.section] + entry.offset
        if at + known.size > self.size:
            raise damaged("a relocation is outside the image")
        target = self._got[entry.symbol] if known.is_through_got else self._target(entry.symbol)
        old = bytes(image[at : at + known.size])
        image[at : at + known.size] = known.patch(base + target + entry.addend, base + at, old)

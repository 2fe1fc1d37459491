"""Reading ELF64 relocatable objects: sections, symbols, relocations. Used by image.py."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ingot.support.errors import IngotError

# numbers of the ELF specification
SHT_SYMTAB, SHT_RELA, SHT_NOBITS = 2, 4, 8
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR = 1, 2, 4
MACHINES = {62: "x86_64", 183: "aarch64"}


@dataclass(frozen=True)
class Section:
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int


@dataclass(frozen=True)
class Symbol:
    name: str
    section: int  # 0: undefined
    value: int
    is_global: bool


@dataclass(frozen=True)
class RelocationEntry:
    section: int  # the one to patch
    offset: int
    kind: int
    symbol: int
    addend: int


class ObjectFile:
    """The parsed tables of one object."""

    def __init__(self, data: bytes):
        if len(data) < 64 or data[:6] != b"\x7fELF\x02\x01":
            raise IngotError("codegen-failed", "an object is not 64-bit little-endian ELF")
        self.data = data
        kind, machine = struct.unpack_from("<HH", data, 16)
        if kind != 1:
            raise IngotError("codegen-failed", "an object is not relocatable")
        self.machine = MACHINES.get(machine, f"machine {machine}")
        try:
            self.sections = self._sections()
            self.symbols = self._symbols()
            self.relocations = self._relocations()
        except (struct.error, IndexError, ValueError, OverflowError) as error:
            raise IngotError("codegen-failed", "an object is damaged", why=str(error)) from error

    def _sections(self) -> list[Section]:
        (table,) = struct.unpack_from("<Q", self.data, 40)
        size, count, names = struct.unpack_from("<HHH", self.data, 58)
        rows = [
            struct.unpack_from("<IIQQQQIIQQ", self.data, table + i * size) for i in range(count)
        ]
        for _, kind, _, _, offset, length, *_ in rows:
            if kind != SHT_NOBITS and offset + length > len(self.data):
                raise ValueError("a section is outside the file")
        strings = rows[names][4]
        return [
            Section(self._string(strings + r[0]), r[1], r[2], r[4], r[5], r[6], r[7], max(1, r[8]))
            for r in rows
        ]

    def _symbols(self) -> list[Symbol]:
        found = []
        for section in self.sections:
            if section.kind != SHT_SYMTAB:
                continue
            strings = self.sections[section.link].offset
            for at in range(section.offset, section.offset + section.size, 24):
                name, info, _, index, value, _ = struct.unpack_from("<IBBHQQ", self.data, at)
                found.append(Symbol(self._string(strings + name), index, value, info >> 4 != 0))
        return found

    def _relocations(self) -> list[RelocationEntry]:
        found = []
        for section in self.sections:
            if section.kind != SHT_RELA:
                continue
            for at in range(section.offset, section.offset + section.size, 24):
                offset, info, addend = struct.unpack_from("<QQq", self.data, at)
                found.append(
                    RelocationEntry(section.info, offset, info & 0xFFFFFFFF, info >> 32, addend)
                )
        return found

    def undefined(self) -> list[str]:
        return [s.name for s in self.symbols if s.section == 0 and s.name]

    def mutable_sections(self) -> list[str]:
        """Sections with writeable data: an Ingot object has none. `.data.rel.ro` holds addresses
        that only the loader writes."""
        both = SHF_WRITE | SHF_ALLOC
        return [
            s.name
            for s in self.sections
            if s.flags & both == both and s.size and not s.name.startswith(".data.rel.ro")
        ]

    def _string(self, at: int) -> str:
        return self.data[at : self.data.index(b"\0", at)].decode()


def undefined_symbols(data: bytes) -> list[str]:
    """Symbols that an object needs from elsewhere; closed code needs none."""
    return ObjectFile(data).undefined()

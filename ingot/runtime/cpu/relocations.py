"""Relocation: how an instruction or a datum is patched with an address, by machine and ELF type.

In: the target's address, the place's address, the bytes at the place. Out: the bytes to write.
Only the types that position-independent closed code has. Called by image.py. The formulas are those
of the ELF supplements: S + A is the target, P the place, Page(x) is x without its low 12 bits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ingot.support.errors import IngotError

Patch = Callable[[int, int, bytes], bytes]  # target, place, what is at the place


@dataclass(frozen=True)
class Relocation:
    size: int  # bytes that it changes
    patch: Patch
    is_through_got: bool = False  # its target is the symbol's entry in the global offset table


def damaged(why: str) -> IngotError:
    return IngotError("codegen-failed", "the object is damaged", why=why)


def _pack(form: str, value: int) -> bytes:
    try:
        return struct.pack(form, value)
    except struct.error as error:
        raise damaged("a relocation is out of range") from error


def _absolute(target: int, place: int, old: bytes) -> bytes:
    return _pack("<Q", target)


def _relative(form: str, target: int, place: int, old: bytes) -> bytes:
    return _pack(form, target - place)


_RELATIVE = Relocation(4, partial(_relative, "<i"))
_RELATIVE_WIDE = Relocation(8, partial(_relative, "<q"))
_THROUGH_GOT = Relocation(4, partial(_relative, "<i"), is_through_got=True)

_X86_64 = {
    1: Relocation(8, _absolute),  # R_X86_64_64
    2: _RELATIVE,  # PC32
    4: _RELATIVE,  # PLT32: closed code has no table of procedures
    9: _THROUGH_GOT,  # GOTPCREL
    24: _RELATIVE_WIDE,  # PC64
    41: _THROUGH_GOT,  # GOTPCRELX
    42: _THROUGH_GOT,  # REX_GOTPCRELX
}


# --- AArch64: fields of 32-bit instructions -----------------------------------------------------


def _field(old: bytes, value: int, low: int, width: int) -> bytes:
    """The instruction with `width` bits from `low` on replaced by the low bits of `value`."""
    (word,) = struct.unpack("<I", old)
    mask = (1 << width) - 1
    return struct.pack("<I", word & ~(mask << low) | (value & mask) << low)


def _signed(value: int, bits: int) -> int:
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise damaged("a relocation is out of range")
    return value


def _branch(low: int, width: int, target: int, place: int, old: bytes) -> bytes:
    """(S + A - P) / 4: branches, and loads of literals."""
    distance = target - place
    if distance % 4:
        raise damaged("a branch to no instruction")
    return _field(old, _signed(distance, width + 2) >> 2, low, width)


def _adr(target: int, place: int, old: bytes) -> bytes:
    return _adr_field(old, _signed(target - place, 21))


def _adr_page(target: int, place: int, old: bytes) -> bytes:
    """Page(S + A) - Page(P), in pages of 4 KiB whatever the system's are."""
    return _adr_field(old, _signed((target >> 12) - (place >> 12), 21))


def _adr_field(old: bytes, value: int) -> bytes:
    """Its two low bits are in bits 29 and 30, the others from bit 5 on."""
    return _field(_field(old, value, 29, 2), value >> 2, 5, 19)


def _low_bits(shift: int, target: int, place: int, old: bytes) -> bytes:
    """The low 12 bits of S + A, in units of the access: add, and loads and stores."""
    if target % (1 << shift):
        raise damaged("a relocation is misaligned")
    return _field(old, (target & 0xFFF) >> shift, 10, 12)


_AARCH64 = {
    257: Relocation(8, _absolute),  # R_AARCH64_ABS64
    260: _RELATIVE_WIDE,  # PREL64
    261: _RELATIVE,  # PREL32
    273: Relocation(4, partial(_branch, 5, 19)),  # LD_PREL_LO19
    274: Relocation(4, _adr),  # ADR_PREL_LO21
    275: Relocation(4, _adr_page),  # ADR_PREL_PG_HI21
    277: Relocation(4, partial(_low_bits, 0)),  # ADD_ABS_LO12_NC
    278: Relocation(4, partial(_low_bits, 0)),  # LDST8_ABS_LO12_NC
    279: Relocation(4, partial(_branch, 5, 14)),  # TSTBR14
    280: Relocation(4, partial(_branch, 5, 19)),  # CONDBR19
    282: Relocation(4, partial(_branch, 0, 26)),  # JUMP26
    283: Relocation(4, partial(_branch, 0, 26)),  # CALL26
    284: Relocation(4, partial(_low_bits, 1)),  # LDST16_ABS_LO12_NC
    285: Relocation(4, partial(_low_bits, 2)),  # LDST32_ABS_LO12_NC
    286: Relocation(4, partial(_low_bits, 3)),  # LDST64_ABS_LO12_NC
    299: Relocation(4, partial(_low_bits, 4)),  # LDST128_ABS_LO12_NC
    311: Relocation(4, _adr_page, is_through_got=True),  # ADR_GOT_PAGE
    312: Relocation(4, partial(_low_bits, 3), is_through_got=True),  # LD64_GOT_LO12_NC
}

TYPES: dict[str, dict[int, Relocation]] = {"x86_64": _X86_64, "aarch64": _AARCH64}

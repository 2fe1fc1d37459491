"""Relocations by themselves: objects for AArch64 are relocated into a buffer, on any machine, and
the patched instructions are decoded again; the addresses they form are those of the symbols."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import pytest

from ingot import api, pipeline
from ingot.runtime.cpu.elf import SHF_ALLOC, ObjectFile
from ingot.runtime.cpu.image import Image
from ingot.runtime.cpu.module import read
from ingot.runtime.cpu.relocations import TYPES
from tests.models.build import HARD
from tests.refusal import refused
from tests.runtime.test_loader import CALLS, POINTERS, SWITCH, TABLE, THROUGH_WORD, build

TRIPLE = "aarch64-unknown-linux-gnu"
BASE = 0x7F12_3456_7000  # as mmap gives it: on a page, above 4 GiB
ADR_PAGE, ADD, CALL, ABSOLUTE, GOT_PAGE, GOT_LOAD = 275, 277, 283, 257, 311, 312
LOADS = {278: 0, 284: 1, 285: 2, 286: 3, 299: 4}  # relocation → log2 of the bytes loaded


# inline assembly is parsed for the host alone
ASM = re.compile(r'call void asm sideeffect "nop # (\d)", ""\(\)')
JUMPS = ASM.sub(r"store volatile i64 \1, ptr %p", SWITCH).replace("(i64 %i)", "(i64 %i, ptr %p)")


# --- decoding, written from the instruction set alone -------------------------------------------


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


def adrp(word: int, place: int) -> int:
    assert word >> 31 == 1 and word >> 24 & 0x1F == 0b10000, f"{word:08x} is no adrp"
    return (place >> 12 << 12) + (signed((word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3, 21) << 12)


def low_bits(word: int, scale: int) -> int:
    """The offset that an add, or a load of 1 << scale bytes, adds to its register."""
    return (word >> 10 & 0xFFF) << scale


def branch(word: int, place: int) -> int:
    assert word >> 26 & 0x1F == 0b00101, f"{word:08x} is no b or bl"
    return place + 4 * signed(word & 0x3FFFFFF, 26)


class Relocated:
    """An object's image, and its relocations in loaded sections with the addresses they are at."""

    def __init__(self, data: bytes):
        self.parsed, self.layout = ObjectFile(data), Image(data)
        self.bytes = bytes(self.layout.relocated(BASE))

    def entries(self) -> Iterator[tuple[int, int, int]]:
        """(relocation type, its address, the address it must lead to)"""
        for entry in self.parsed.relocations:
            if self.parsed.sections[entry.section].flags & SHF_ALLOC:
                at = BASE + self.layout._offsets[entry.section] + entry.offset
                symbol = self.parsed.symbols[entry.symbol]
                target = BASE + self.layout._offsets[symbol.section] + symbol.value + entry.addend
                yield entry.kind, at, target

    def word(self, address: int) -> int:
        return struct.unpack_from("<I", self.bytes, address - BASE)[0]

    def long(self, address: int) -> int:
        return struct.unpack_from("<Q", self.bytes, address - BASE)[0]


def check(data: bytes) -> set[int]:
    """Every relocated instruction leads to its symbol; the relocation types that were met."""
    image, met = Relocated(data), set()
    pages: dict[int, int] = {}  # the page that the last adrp for a target forms
    for kind, at, target in image.entries():
        met.add(kind)
        if kind == ABSOLUTE:
            assert image.long(at) == target
            continue
        word = image.word(at)
        if kind == CALL:
            assert branch(word, at) == target
        elif kind in (ADR_PAGE, GOT_PAGE):
            pages[target] = adrp(word, at)
            assert kind == GOT_PAGE or pages[target] == target & -4096
        elif kind == ADD or kind in LOADS:
            assert pages[target] + low_bits(word, LOADS.get(kind, 0)) == target
        elif kind == GOT_LOAD:
            assert image.long(pages[target] + low_bits(word, 3)) == target
        else:
            raise AssertionError(f"relocation type {kind} is not decoded here")
    return met


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (TABLE, {ADR_PAGE, ADD}),
        (JUMPS, {ADR_PAGE, ADD}),
        (CALLS, {CALL}),
        (THROUGH_WORD, {GOT_PAGE, GOT_LOAD}),
        (POINTERS, {ADR_PAGE, ADD, ABSOLUTE}),
    ],
    ids=["table", "jumps", "calls", "through_word", "pointers"],
)
def test_small_objects(text: str, kinds: set[int]):
    assert check(build(text, TRIPLE)) == kinds


@pytest.mark.parametrize("bits", [8, 16, 32, 64, 128])
def test_constants_of_every_width(bits: int):
    text = f"""
@k = private constant [2 x i{bits}] [i{bits} 77, i{bits} 78], align 16
define i{bits} @f() nounwind {{
  %p = getelementptr i{bits}, ptr @k, i64 1
  %v = load volatile i{bits}, ptr %p
  ret i{bits} %v
}}"""
    check(build(text, TRIPLE))


def test_objects_of_models():
    met: set[int] = set()
    for name in ("residual_cnn", "transformer_block", "loop", "lstm"):
        module = read(pipeline.run_stages(HARD[name]()[0], api.make_session("aarch64")))
        for data in (*module.kernels, module.entry, module.support):
            met |= check(data)
    assert {CALL, ADR_PAGE, 299} <= met


# Words as the architecture's manual encodes them: the instruction with its field 0, the distance
# from place to target (or the target's low bits), the instruction that must come out.
WORDS = [
    (283, 0x94000000, 8, 0x94000002),  # bl .+8
    (282, 0x14000000, -4, 0x17FFFFFF),  # b .-4
    (280, 0xB4000000, 8, 0xB4000040),  # cbz x0, .+8
    (280, 0x54000000, -8, 0x54FFFFC0),  # b.eq .-8
    (279, 0x36000000, 8, 0x36000040),  # tbz w0, #0, .+8
    (273, 0x58000000, 8, 0x58000040),  # ldr x0, .+8
    (274, 0x10000000, 9, 0x30000040),  # adr x0, .+9
    (274, 0x10000000, -1, 0x70FFFFE0),  # adr x0, .-1
    (275, 0x90000000, 0x1000, 0xB0000000),  # adrp x0, 1 page on
    (275, 0x90000000, -0x1000, 0xF0FFFFE0),  # adrp x0, 1 page back
    (277, 0x91000000, 0x123, 0x91048C00),  # add x0, x0, #0x123
    (278, 0x39400000, 0x121, 0x39448400),  # ldrb w0, [x0, #0x121]
    (284, 0x79400000, 0x122, 0x79424400),  # ldrh w0, [x0, #0x122]
    (285, 0xB9400000, 0x124, 0xB9412400),  # ldr w0, [x0, #0x124]
    (286, 0xF9400000, 0x128, 0xF9409400),  # ldr x0, [x0, #0x128]
    (299, 0x3DC00000, 0x120, 0x3DC04800),  # ldr q0, [x0, #0x120]
    (311, 0x90000000, 0x1000, 0xB0000000),
    (312, 0xF9400000, 0x128, 0xF9409400),
    (261, 0, -12, 0xFFFFFFF4),
]


@pytest.mark.parametrize(("kind", "before", "distance", "after"), WORDS)
def test_words_as_the_manual_encodes_them(kind: int, before: int, distance: int, after: int):
    patch = TYPES["aarch64"][kind].patch
    assert patch(BASE + distance, BASE, struct.pack("<I", before)) == struct.pack("<I", after)
    # what was in the field before does not matter
    full = struct.pack("<I", before | (before ^ after))
    assert patch(BASE + distance, BASE, full) == struct.pack("<I", after)


@pytest.mark.parametrize(
    ("kind", "distance"),
    [(283, 1 << 27), (283, 2), (279, 1 << 15), (275, 1 << 33), (286, 4), (299, 8), (261, 1 << 31)],
)
def test_what_does_not_fit_is_refused(kind: int, distance: int):
    with refused("codegen-failed", hint=False):
        TYPES["aarch64"][kind].patch(BASE + distance, BASE, bytes(4))


def test_wide_data():
    types = TYPES["aarch64"]
    assert types[257].patch(BASE, 0, bytes(8)) == struct.pack("<Q", BASE)
    assert types[260].patch(BASE, BASE + 5, bytes(8)) == struct.pack("<q", -5)

"""The loader by itself: hand-written IR in, callable code out; and everything it refuses."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pytest

from ingot import IngotError
from ingot.codegen import llvm_object
from ingot.runtime.cpu import relocations
from ingot.runtime.cpu.elf import ObjectFile, undefined_symbols
from ingot.runtime.cpu.loader import LoadedObject
from tests.refusal import Fact, refused
from tests.runtime.common import exe, feeds


@lru_cache
def build(text: str, triple: str = "") -> bytes:
    host, _, features = llvm_object.host()
    if triple:
        return llvm_object.compile_text(text, triple, "generic", "", 2)
    return llvm_object.compile_text(text, host, "x86-64", features, 2)


def function(loaded: LoadedObject, name: str = "f") -> Callable[[int], int]:
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.address(name))
    call.loaded = loaded  # type: ignore[attr-defined]  # its code goes with it
    return call


TABLE = """
@table = private constant [5 x i64] [i64 3, i64 1, i64 4, i64 1, i64 5]
define i64 @f(i64 %i) nounwind {
  %at = getelementptr i64, ptr @table, i64 %i
  %v = load i64, ptr %at
  ret i64 %v
}"""

# cases too unlike each other for arithmetic or a table of values: a jump table
SWITCH = (
    "define i64 @f(i64 %i) nounwind {\nswitch i64 %i, label %none ["
    + " ".join(f"i64 {n}, label %c{n}" for n in range(8))
    + "]\n"
    + "\n".join(
        f"c{n}:\n%a{n} = {op} i64 %i, {n + 7}\n"
        f'call void asm sideeffect "nop # {n}", ""()\nret i64 %a{n}'
        for n, op in enumerate(("add", "sub", "mul", "xor", "or", "shl", "and", "add"))
    )
    + "\nnone:\nret i64 -1\n}"
)

CALLS = """
define i64 @helper(i64 %i) noinline nounwind {
  %v = mul i64 %i, 3
  call void asm sideeffect "", ""()
  ret i64 %v
}
define i64 @f(i64 %i) nounwind {
  %a = call i64 @helper(i64 %i)
  %b = add i64 %a, 1
  ret i64 %b
}"""

THROUGH_WORD = """
@shown = constant i64 42
define i64 @f(i64 %i) nounwind {
  %p = ptrtoint ptr @shown to i64
  ret i64 %p
}"""

POINTERS = """
@a = private constant i64 10
@b = private constant i64 20
@both = hidden constant [2 x ptr] [ptr @a, ptr @b]
define i64 @f(i64 %i) nounwind {
  %at = getelementptr ptr, ptr @both, i64 %i
  %p = load ptr, ptr %at
  %v = load i64, ptr %p
  ret i64 %v
}"""


def kinds(data: bytes) -> set[int]:
    return {r.kind for r in ObjectFile(data).relocations}


def test_read_only_constants():
    loaded = LoadedObject(build(TABLE))
    assert [function(loaded)(i) for i in range(5)] == [3, 1, 4, 1, 5]


def test_jump_tables():
    data = build(SWITCH)
    sections = {s.name for s in ObjectFile(data).sections if s.size}
    assert ".rodata" in sections and kinds(data), "the case tests a jump table"
    f = function(LoadedObject(data))
    want = [7, 1 - 8, 2 * 9, 3 ^ 10, 4 | 11, 5 << 12, 6 & 13, 7 + 14, -1, -1]
    assert [f(i) for i in range(10)] == want


def test_calls_within_the_object():
    loaded = LoadedObject(build(CALLS))
    assert function(loaded)(5) == 16 and function(loaded, "helper")(5) == 15


def test_addresses_through_a_word():
    data = build(THROUGH_WORD)
    assert kinds(data) & {9, 41, 42}, "the case tests a reference through a word"
    loaded = LoadedObject(data)
    address = function(loaded)(0)
    assert address == loaded.address("shown")
    assert ctypes.c_int64.from_address(address).value == 42


def test_constants_that_hold_addresses():
    data = build(POINTERS)
    assert 1 in kinds(data) and ObjectFile(data).mutable_sections() == []
    f = function(LoadedObject(data))
    assert (f(0), f(1)) == (10, 20)


def test_an_unloaded_object_is_unmapped():
    loaded = LoadedObject(build(TABLE))
    address = loaded.address("f")
    assert mapped(address) == "r-x"
    del loaded
    assert mapped(address) == ""


def mapped(address: int) -> str:
    """How the address may be accessed; empty if it is not mapped."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, flags, *_ = line.split()
        low, high = (int(x, 16) for x in span.split("-"))
        if low <= address < high:
            return flags[:3]
    return ""


def test_nothing_is_writeable_and_executable():
    loaded = LoadedObject(build(THROUGH_WORD))
    assert mapped(loaded.address("f")) == "r-x"
    assert mapped(loaded.address("shown")) == "r--"
    compiled = exe("residual_cnn", 2)
    compiled.run(None, feeds("residual_cnn"))
    code = compiled._loaded._code
    codes = [*code.objects, code.services._loaded]
    assert {mapped(code._base) for code in codes} == {"r-x"}


# --- refusals -----------------------------------------------------------------------------------


def assert_refused(data: bytes, *facts: Fact, hint: bool = False) -> None:
    with refused("codegen-failed", *facts, hint=hint):
        LoadedObject(data)


def test_open_code_is_refused():
    data = build("declare i64 @sin_of(i64)\ndefine i64 @f(i64 %i) {\n"
                 "%v = call i64 @sin_of(i64 %i)\nret i64 %v\n}")  # fmt: skip
    assert undefined_symbols(data) == ["sin_of"]
    assert_refused(data, "sin_of")


@pytest.mark.parametrize(("start", "section"), [("i64 7", ".data"), ("i64 0", ".bss")])
def test_mutable_globals_are_refused(start: str, section: str):
    data = build(f"@g = global {start}\ndefine i64 @f(i64 %i) {{\nstore i64 %i, ptr @g\n"
                 "ret i64 0\n}")  # fmt: skip
    assert_refused(data, section)


def test_other_machines_are_refused():
    assert_refused(build(TABLE, "aarch64-unknown-linux-gnu"), "aarch64", hint=True)


def test_what_is_no_object_is_refused():
    good = build(TABLE)
    assert_refused(b"", "ELF")
    assert_refused(b"MZ" + good[2:], "ELF")
    assert_refused(good[:16] + struct.pack("<H", 2) + good[18:])


def test_damaged_objects_are_refused():
    """Cut short anywhere, or with any byte of its tables changed: refused or loaded, no crash."""
    good = build(TABLE)
    for size in range(64, len(good), 16):
        assert_refused(good[:size])
    (table,) = struct.unpack_from("<Q", good, 40)
    for at in [*range(16, 64), *range(table, len(good))]:
        broken = bytearray(good)
        broken[at] ^= 0xFF
        try:
            LoadedObject(bytes(broken))
        except IngotError as error:
            assert error.code == "codegen-failed"


def test_unknown_relocations_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(relocations.TYPES, "x86_64", {})
    assert_refused(build(TABLE), 2)


def test_a_missing_symbol_is_named():
    with refused("codegen-failed", "nothing", hint=False):
        LoadedObject(build(TABLE)).address("nothing")

"""Every object the compiler makes is closed: no undefined symbols, no mutable globals."""

from __future__ import annotations

import pytest

from ingot.codegen import llvm_object
from ingot.runtime.cpu.elf import ObjectFile, undefined_symbols
from ingot.runtime.cpu.module import read
from ingot.runtime.cpu.native.support import support_text
from ingot.support.abi import ENTRY, KERNEL
from tests.runtime.common import CASES, package


def distinct() -> list[str]:
    """The names of the test models, one for each that differs in more than its feeds."""
    models = {CASES[name]()[0].SerializeToString(): name for name in reversed(CASES)}
    return list(models.values())


@pytest.mark.parametrize("name", distinct())
def test_every_object_is_closed(name: str):
    built = read(package(name))
    objects = [*built.kernels, built.entry, built.support]
    assert len(objects) > 2
    for data in objects:
        parsed = ObjectFile(data)
        assert undefined_symbols(data) == []
        assert parsed.mutable_sections() == []
        assert {s.name for s in parsed.symbols if s.is_global} & {KERNEL, ENTRY, "pool_run"}


@pytest.mark.parametrize(
    "triple", ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "riscv64-unknown-linux-gnu"]
)
def test_the_support_object_is_closed_on_every_machine(triple: str):
    features = "+m,+a,+d" if triple.startswith("riscv") else ""
    data = llvm_object.compile_text(support_text(triple, 100, 100), triple, "", features, 3)
    assert undefined_symbols(data) == [] and ObjectFile(data).mutable_sections() == []

"""Dot-product instructions: one multiplies `group` pairs per lane and adds them to i32 or f32.

    C[lane] += Σ A[k] · B[lane, k]      k < group; A is broadcast, B is packed in panels

Integers are exact. Products of bf16 are exact too, and added in f32, in an order of the
instruction's own; x86 reads subnormal operands as zero and flushes subnormal sums. So those are
used only where the option `bf16_dots` asks for them.

In: a target and the element types of both operands. Out: the row of the instruction to use, or
None. The k loop of a register tile then has an iteration for each `group` of terms, and an
iteration costs like one of f32: elements of a group take the bytes of one f32. One table serves the
cost model, the layout of packed operands and schedule/widening.py, which makes the instruction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ingot import dtypes
from ingot.dtypes import DType
from ingot.machine import Core
from ingot.support import options
from ingot.target import Target


@dataclass(frozen=True)
class DotRow:
    """One machine instruction."""

    a: str
    b: str
    group: int  # multiplications accumulated per lane: the k-block of a packed operand
    lanes: int
    features: str  # LLVM feature names
    call: str  # in the syntax of loops/emit.py

    @property
    def sums(self) -> DType:
        """The element type of C."""
        return dtypes.f32 if dtypes.of(self.a).is_float else dtypes.i32

    @property
    def adds_apart(self) -> bool:
        """Is the sum added to the accumulator by an instruction of its own?"""
        return "+=" in self.call

    def core(self, core: Core) -> Core:
        """The core as the register tile's cost sees it. Where multiply-add and add are two
        instructions, only the add, of one cycle, depends on the accumulator's last value."""
        return (
            replace(core, fma_instructions=2, fma_latency_cycles=1.0) if self.adds_apart else core
        )


DOT_ROWS = (
    DotRow("u8", "i8", 4, 16, "avx512vnni", "C = llvm.x86.avx512.vpdpbusd.512(C, A*16, B)"),
    DotRow("u8", "i8", 4, 8, "avx512vnni,avx512vl", "C = llvm.x86.avx512.vpdpbusd.256(C, A*8, B)"),
    DotRow("u8", "i8", 4, 8, "avxvnni", "C = llvm.x86.avx512.vpdpbusd.256(C, A*8, B)"),
    DotRow("u8", "i8", 4, 4, "i8mm", "C = llvm.aarch64.neon.usdot.v4i32.v16i8(C, A*4, B)"),
    DotRow("i8", "i8", 4, 4, "dotprod", "C = llvm.aarch64.neon.sdot.v4i32.v16i8(C, A*4, B)"),
    DotRow("u8", "u8", 4, 4, "dotprod", "C = llvm.aarch64.neon.udot.v4i32.v16i8(C, A*4, B)"),
    DotRow("i16", "i16", 2, 16, "avx512bw", "C += llvm.x86.avx512.pmaddw.d.512(A*16, B)"),
    DotRow("i16", "i16", 2, 8, "avx2", "C += llvm.x86.avx2.pmadd.wd(A*8, B)"),
    DotRow("i16", "i16", 2, 4, "sse2", "C += llvm.x86.sse2.pmadd.wd(A*4, B)"),
    DotRow("bf16", "bf16", 2, 16, "avx512bf16", "C = llvm.x86.avx512bf16.dpbf16ps.512(C, A*16, B)"),
    DotRow("bf16", "bf16", 2, 8, "avx512bf16,avx512vl",
           "C = llvm.x86.avx512bf16.dpbf16ps.256(C, A*8, B)"),
    DotRow("bf16", "bf16", 2, 4, "bf16", "C = llvm.aarch64.neon.bfdot.v4f32.v8bf16(C, A*4, B)"),
)  # fmt: skip


def dot_rows(target: Target, a: DType, b: DType) -> Iterator[DotRow]:
    """The instructions of the target for elements of types `a` and `b`, the widest first."""
    for row in DOT_ROWS if target.printer == "llvm" else ():  # what emits `call`
        if (row.a, row.b) == (a.name, b.name) and all(map(target.has, row.features.split(","))):
            yield row


def dot_product(target: Target, a: DType, b: DType) -> DotRow | None:
    """The widest one; None if the target has none for these types, or it is not asked for."""
    if a.is_float and not options.current().bf16_dots:
        return None
    return next(dot_rows(target, a, b), None)

"""Widening integer dot products for `tensorize`: C[j] += Σₖ A[k] · B[j, k], accumulated in i32.

In: a target and the types of A and B. Out: the widest such instruction of the target, or None. B
must be packed so that the elements of one lane are adjacent (`transform_layout`, `reindex`). The
table has one row per machine instruction (VNNI, pmaddwd, sdot, …).
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.dtypes import DType
from ingot.loops import ir
from ingot.schedule.instructions import instruction
from ingot.target import Target


@dataclass(frozen=True)
class DotRow:
    """One machine instruction."""

    a: str
    b: str
    group: int  # multiplications accumulated per lane
    lanes: int
    features: str  # LLVM feature names
    call: str  # in the syntax of loops/emit.py

    def build(self) -> ir.Instruction:
        name = f"dot_{self.a}_{self.b}_{self.lanes}x{self.group}"
        meaning = f"""
        @ingot.kernel
        def {name}(A: {self.a}[{self.group}], B: {self.b}[{self.lanes}, {self.group}], C: i32[{self.lanes}]):
            for j, k in grid({self.lanes}, {self.group}):
                C[j] += cast(A[k], i32) * cast(B[j, k], i32)
        """  # noqa: E501
        return instruction(name, meaning, f"llvm[{self.features}]: {self.call}")


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
)


def widening_dot(target: Target, a: DType, b: DType) -> ir.Instruction | None:
    """The widest one of the target for elements of types `a` and `b`; None if it has none."""
    for row in DOT_ROWS:  # for each pair of types the widest first
        if (row.a, row.b) == (a.name, b.name) and all(map(target.has, row.features.split(","))):
            return row.build()
    return None

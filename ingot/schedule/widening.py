"""Integer products that widen as they add, for `tensorize`: C[j] += Σₖ A[k] · B[j, k], in i32.

In: a target and the types of A and B. Out: the widest such instruction the target has, or None. B
is packed so that what one lane adds up lies together (`transform_layout`, `reindex`). Rows are
machine instructions; a processor with another one is another row.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.dtypes import DType
from ingot.loops import ir
from ingot.schedule.instructions import instruction
from ingot.target import Target


@dataclass(frozen=True)
class Row:
    a: str
    b: str
    group: int  # products added to one lane
    lanes: int
    features: str  # LLVM's names
    call: str  # as loops/emit.py has it

    def made(self) -> ir.Instruction:
        name = f"dot_{self.a}_{self.b}_{self.lanes}x{self.group}"
        meaning = f"""
        @ingot.kernel
        def {name}(A: {self.a}[{self.group}], B: {self.b}[{self.lanes}, {self.group}], C: i32[{self.lanes}]):
            for j, k in grid({self.lanes}, {self.group}):
                C[j] += cast(A[k], i32) * cast(B[j, k], i32)
        """  # noqa: E501
        return instruction(name, meaning, f"llvm[{self.features}]: {self.call}")


ROWS = (
    Row("u8", "i8", 4, 16, "avx512vnni", "C = llvm.x86.avx512.vpdpbusd.512(C, A*16, B)"),
    Row("u8", "i8", 4, 8, "avx512vnni,avx512vl", "C = llvm.x86.avx512.vpdpbusd.256(C, A*8, B)"),
    Row("u8", "i8", 4, 8, "avxvnni", "C = llvm.x86.avx512.vpdpbusd.256(C, A*8, B)"),
    Row("u8", "i8", 4, 4, "i8mm", "C = llvm.aarch64.neon.usdot.v4i32.v16i8(C, A*4, B)"),
    Row("i8", "i8", 4, 4, "dotprod", "C = llvm.aarch64.neon.sdot.v4i32.v16i8(C, A*4, B)"),
    Row("u8", "u8", 4, 4, "dotprod", "C = llvm.aarch64.neon.udot.v4i32.v16i8(C, A*4, B)"),
    Row("i16", "i16", 2, 16, "avx512bw", "C += llvm.x86.avx512.pmaddw.d.512(A*16, B)"),
    Row("i16", "i16", 2, 8, "avx2", "C += llvm.x86.avx2.pmadd.wd(A*8, B)"),
    Row("i16", "i16", 2, 4, "sse2", "C += llvm.x86.sse2.pmadd.wd(A*4, B)"),
)


def widening_dot(target: Target, a: DType, b: DType) -> ir.Instruction | None:
    """The widest of the target for elements of types `a` and `b`; None where it has none."""
    for row in ROWS:  # the widest of each kind first
        if (row.a, row.b) == (a.name, b.name) and all(map(target.has, row.features.split(","))):
            return row.made()
    return None

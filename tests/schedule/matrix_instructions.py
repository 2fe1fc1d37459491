"""AArch64's products of two rows by two columns, as instructions for `tensorize`: i8mm and bf16.

    C[i, j] += Σ A[i, k] · B[j, k]      i, j < 2; eight terms of 8 bits, or four of bf16

No rule uses them yet: its register tile would be stored in blocks of 2 × 2 (docs/quantisation.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.loops import ir
from ingot.loops.script_parse import parse
from ingot.schedule import Schedule, instruction


@dataclass(frozen=True)
class Matrix:
    word: str  # the mnemonic
    a: str
    b: str
    sums: str
    terms: int
    feature: str
    intrinsic: str

    @property
    def instruction(self) -> ir.Instruction:
        meaning = f"""
        @ingot.kernel
        def {self.word}(A: {self.a}[2, {self.terms}], B: {self.b}[2, {self.terms}],
                        C: {self.sums}[2, 2]):
            for i, j, k in grid(2, 2, {self.terms}):
                C[i, j] += cast(A[i, k], {self.sums}) * cast(B[j, k], {self.sums})
        """
        emit = f"llvm[{self.feature}]: C = llvm.aarch64.neon.{self.intrinsic}(C, A, B)"
        return instruction(self.word, meaning, emit)

    def tensorized(self, rows: int, columns: int, steps: int) -> tuple[ir.Kernel, Schedule]:
        """A product of matrices, and its schedule by this instruction."""
        kernel = parse(GEMM.format(**vars(self), rows=rows, columns=columns,
                                   depth=steps * self.terms))  # fmt: skip
        sch = Schedule(kernel)
        i, j, k = sch.loops(sch.block("Y"))
        (io, ii), (jo, ji) = sch.split(i, None, 2), sch.split(j, None, 2)
        ko, ki = sch.split(k, None, self.terms)
        sch.reorder(io, jo, ko, ii, ji, ki)
        sch.decompose_reduction(sch.block("Y"), ko)
        sch.tensorize(ii, self.instruction)
        return kernel, sch


GEMM = """
@ingot.kernel(origin="", family="")
def gemm(X: {a}[{rows}, {depth}], W: {b}[{columns}, {depth}], Y: {sums}[{rows}, {columns}]):
    for i, j, k in grid({rows}, {columns}, {depth}):
        with block("Y", spatial=(i, j), reduce=(k,)) as (vi, vj, vk):
            with init():
                Y[vi, vj] = {sums}(0)
            Y[vi, vj] += cast(X[vi, vk], {sums}) * cast(W[vj, vk], {sums})
"""
MATRICES = (
    Matrix("smmla", "i8", "i8", "i32", 8, "i8mm", "smmla.v4i32.v16i8"),
    Matrix("ummla", "u8", "u8", "i32", 8, "i8mm", "ummla.v4i32.v16i8"),
    Matrix("usmmla", "u8", "i8", "i32", 8, "i8mm", "usmmla.v4i32.v16i8"),
    Matrix("bfmmla", "bf16", "bf16", "f32", 4, "bf16", "bfmmla"),
)

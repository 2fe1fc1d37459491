"""Look-ups in a table of 256 bytes for `tensorize`: C[j] = T[A[j]].

In: a target and the types. Out: its instruction, or None. Like schedule/widening.py's dot products
each is a row of a table; the printer has the machine's sequence (codegen/llvm_sequences.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.dtypes import DType
from ingot.loops import ir
from ingot.schedule.instructions import instruction
from ingot.target import Target

TABLE = 256  # entries: one for each byte


@dataclass(frozen=True)
class LookupRow:
    """A sequence of instructions for `lanes` look-ups, and the features it needs."""

    lanes: int
    features: str
    sequence: str

    def build(self, source: DType, result: DType) -> ir.Instruction:
        name = f"look_up_{source}_{result}_{self.lanes}"
        code = "A[j]" if source.name == "u8" else "value(cast(bitcast(A[j], u8), i64))"
        meaning = f"""
        @ingot.kernel
        def {name}(T: {result}[{TABLE}], A: {source}[{self.lanes}], C: {result}[{self.lanes}]):
            for j in grid({self.lanes}):
                C[j] = T[{code}]
        """
        return instruction(name, meaning, f"llvm[{self.features}]: C = {self.sequence}(T, A)")


LOOKUP_ROWS = (  # the first that a target has is its fastest
    LookupRow(64, "avx512vbmi", "ingot.lookup.permute"),
    LookupRow(64, "avx512bw", "ingot.lookup.shuffle"),
    LookupRow(32, "avx2", "ingot.lookup.shuffle"),
    LookupRow(16, "ssse3", "ingot.lookup.shuffle"),
    LookupRow(16, "neon", "ingot.lookup.table"),
)


def byte_look_up(target: Target, source: DType, result: DType) -> ir.Instruction | None:
    """The target's look-up of bytes; None if it has none."""
    for row in LOOKUP_ROWS:
        if all(map(target.has, row.features.split(","))):
            return row.build(source, result)
    return None

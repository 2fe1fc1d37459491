"""Dot products over four columns for `tensorize`: C[j] += Σₖ A[k, j] · B[j, k], accumulated in i32.

In: a target. Out: its instruction, or None. Both operands have a value for each lane, where the A
of schedule/widening.py is the same in all.
"""

from __future__ import annotations

from ingot.loops import ir
from ingot.schedule.instructions import instruction
from ingot.target import Target

COLUMNS = 4
# (feature, lanes of a register). Two or four registers at a time, with their interleaving in pairs,
# were slower by a fifth and more (measured on Zen 5).
ROWS = (("avx512vnni", 16), ("avxvnni", 8))


def column_dot(target: Target) -> tuple[int, ir.Instruction] | None:
    """The lanes of the target's dot product over columns, and the instruction."""
    for feature, lanes in ROWS:
        if target.has(feature):
            return lanes, _build(feature, lanes)
    return None


def _build(feature: str, lanes: int) -> ir.Instruction:
    name = f"dot_columns_{lanes}"
    meaning = f"""
    @ingot.kernel
    def {name}(A: u8[{COLUMNS}, {lanes}], B: i8[{lanes}, {COLUMNS}], C: i32[{lanes}]):
        for j, k in grid({lanes}, {COLUMNS}):
            C[j] += cast(A[k, j], i32) * cast(B[j, k], i32)
    """
    return instruction(name, meaning, f"llvm[{feature}]: C = ingot.dot.columns(C, A, B)")

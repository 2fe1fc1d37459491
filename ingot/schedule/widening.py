"""Widening dot products for `tensorize`: C[j] += Σₖ A[k] · B[j, k], in i32, and of bf16 in f32.

In: a row of cost/dot_products.py, or a target and the types of A and B. Out: the instruction. B
must be packed so that the elements of one lane are adjacent (`transform_layout`, `reindex`, or the
k-block of a layout's panels).
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.cost.dot_products import DOT_ROWS, DotRow, dot_product, dot_rows
from ingot.cost.packed_weights import code_dots
from ingot.dtypes import DType
from ingot.loops import ir
from ingot.schedule.instructions import instruction
from ingot.target import Target


def dot_instruction(row: DotRow) -> ir.Instruction:
    group, lanes, sums = row.group, row.lanes, row.sums
    name = f"dot_{row.a}_{row.b}_{lanes}x{group}"
    meaning = f"""
    @ingot.kernel
    def {name}(A: {row.a}[{group}], B: {row.b}[{lanes}, {group}], C: {sums}[{lanes}]):
        for j, k in grid({lanes}, {group}):
            C[j] += cast(A[k], {sums}) * cast(B[j, k], {sums})
    """
    return instruction(name, meaning, f"llvm[{row.features}]: {row.call}")


def widening_dot(target: Target, a: DType, b: DType) -> ir.Instruction | None:
    """The widest one of the target for elements of types `a` and `b`; None if it has none."""
    row = dot_product(target, a, b)
    return None if row is None else dot_instruction(row)


def planned_dot(
    target: Target, types: Sequence[DType], group: int, lanes: int
) -> ir.Instruction | None:
    """The one of a plan: `group` terms of two operands for each of so many lanes."""
    rows = dot_rows(target, *types) if len(types) == 2 else ()
    found = next((row for row in rows if (row.group, row.lanes) == (group, lanes)), None)
    return None if found is None else dot_instruction(found)


def code_dot(target: Target, group: int, lanes: int) -> ir.Instruction | None:
    """The one that multiplies packed codes by a quantised x, so many terms and lanes at a time."""
    found = (row for row in code_dots(target) if (row.group, row.lanes) == (group, lanes))
    row = next(found, None)
    return None if row is None else dot_instruction(row)


__all__ = ["DOT_ROWS", "DotRow", "code_dot", "dot_instruction", "planned_dot", "widening_dot"]

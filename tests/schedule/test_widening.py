"""Widening dot products: each row becomes its machine instruction, with its semantics."""

from __future__ import annotations

import pytest

from ingot import dtypes, target
from ingot.codegen.llvm import kernel_assembly
from ingot.schedule import Schedule, widening_dot
from ingot.schedule.widening import DOT_ROWS, DotRow, dot_instruction
from ingot.support import options
from tests.native import legal_kernels
from tests.schedule.equivalence import assert_everywhere
from tests.schedule.instructions import packed_gemm
from tests.schedule.matrix_instructions import MATRICES

MNEMONICS = {"vpdpbusd": "vpdpbusd", "pmadd": "pmaddwd", "usdot": "usdot", "sdot": "sdot",
             "udot": "udot", "dpbf16ps": "vdpbf16ps", "bfdot": "bfdot"}  # fmt: skip


def tensorized(row: DotRow) -> tuple:
    types = dtypes.of(row.a), dtypes.of(row.b)
    kernel = packed_gemm(3, 2 * row.lanes, 3 * row.group, row.group, *types)
    sch = Schedule(kernel)
    i, j, p, q = sch.loops(sch.block("Y"))
    jo, ji = sch.split(j, None, row.lanes)
    sch.reorder(i, jo, p, ji, q)
    sch.tensorize(ji, dot_instruction(row))
    return kernel, sch


@pytest.mark.parametrize("row", DOT_ROWS, ids=lambda r: f"{r.a}·{r.b} {r.features}")
def test_a_row_is_one_instruction_of_its_target(row):
    base = "aarch64" if "aarch64" in row.call else "x86-64-v2"
    on = target.parse(
        "+".join([base, *row.features.split(","), *["avx512f"] * ("512" in row.call)])
    )
    _, sch = tensorized(row)
    (legal,) = legal_kernels(sch.kernel, on).kernels
    word = next(word for key, word in MNEMONICS.items() if key in row.call)
    assert word in kernel_assembly(legal, on)


@pytest.mark.parametrize("row", DOT_ROWS, ids=lambda r: f"{r.a}·{r.b} {r.features}")
def test_a_row_computes_its_meaning_everywhere(row):
    """Where this machine lacks it, its meaning is compiled."""
    assert_everywhere(*tensorized(row))


def test_the_widest_is_chosen():
    def name(on: str, a: str, b: str) -> str:
        found = widening_dot(target.parse(on), dtypes.of(a), dtypes.of(b))
        return "" if found is None else found.name

    assert name("x86-64-v4+avx512vnni", "u8", "i8") == "dot_u8_i8_16x4"
    assert name("x86-64-v3+avxvnni", "u8", "i8") == "dot_u8_i8_8x4"
    assert name("x86-64-v3", "i16", "i16") == "dot_i16_i16_8x2"
    assert name("x86-64-v2", "i16", "i16") == "dot_i16_i16_4x2"
    assert name("aarch64+dotprod", "i8", "i8") == "dot_i8_i8_4x4"
    with options.using(options.changed(bf16_dots=True)):
        assert name("x86-64-v4+avx512bf16", "bf16", "bf16") == "dot_bf16_bf16_16x2"
        assert name("aarch64+bf16", "bf16", "bf16") == "dot_bf16_bf16_4x2"
    assert name("x86-64-v4+avx512bf16", "bf16", "bf16") == "", "only where it is asked for"
    assert name("x86-64-v3", "u8", "i8") == name("aarch64", "i8", "i8") == ""


@pytest.mark.parametrize("matrix", MATRICES, ids=lambda m: m.word)
def test_a_matrix_instruction_of_aarch64(matrix):
    """By a schedule of one's own; tests/aarch64 runs it."""
    kernel, sch = matrix.tensorized(6, 10, 3)
    on = target.parse(f"aarch64+{matrix.feature}")
    (legal,) = legal_kernels(sch.kernel, on).kernels
    assert f"\t{matrix.word}\t" in kernel_assembly(legal, on)
    assert_everywhere(kernel, sch)

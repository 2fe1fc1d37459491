"""Masked loads: a condition that is uniform over the lanes becomes a branch, others are masks."""

from __future__ import annotations

import pytest

from ingot.codegen.llvm import kernel_text
from ingot.loops.script_parse import parse
from ingot.schedule import Schedule
from tests.native import legal_kernels
from tests.schedule.equivalence import assert_everywhere

PADDED = """
@ingot.kernel(origin="", family="")
def padded(X: f32[6, 21], Y: f32[10, {width}]):
    for i, j in grid(10, {width}):
        with block("Y", spatial=(i, j)) as (vi, vj):
            Y[vi, vj] = load(X[vi - 2, vj{shift}], mask={mask}, other=0.5)
"""
ROWS = "(index(vi - 2) >= 0) & (index(vi - 2) < index(6))"
COLUMNS = "(index(vj - 1) >= 0) & (index(vj - 1) < index(21))"


@pytest.mark.parametrize(
    ("width", "shift", "mask", "branches", "masks"),
    [
        (16, "", ROWS, True, False),
        (32, " - 1", f"{ROWS} & ({COLUMNS})", True, True),
    ],
)
def test_a_uniform_mask_becomes_a_branch(width, shift, mask, branches, masks):
    """Where it is false no memory is accessed: a masked load of an unmapped page is slow."""
    kernel = parse(PADDED.format(width=width, shift=shift, mask=mask))
    sch = Schedule(kernel)
    sch.vectorize(sch.split(sch.loops(sch.block("Y"))[-1], None, 8)[1])
    legal = legal_kernels(sch.kernel).kernels[0]
    text = kernel_text(legal)
    assert ("guard" in text, "call <8 x float> @llvm.masked.load" in text) == (branches, masks)
    assert_everywhere(kernel, sch)


def test_a_kernel_without_masks_has_neither():
    text = PADDED.format(width=16, shift="", mask="")
    plain = text.replace("load(X[vi - 2, vj], mask=, other=0.5)", "X[vi - vi // 6 * 6, vj]")
    sch = Schedule(parse(plain))
    sch.vectorize(sch.split(sch.loops(sch.block("Y"))[-1], None, 8)[1])
    (legal,) = legal_kernels(sch.kernel).kernels
    assert "guard" not in kernel_text(legal) and "masked" not in kernel_text(legal)


REVERSED = """
@ingot.kernel(origin="", family="")
def narrowed(X: {wide}[9, {width}], Y: {narrow}[9, {width}]):
    for i, j in grid(9, {width}):
        with block("Y", spatial=(i, j)) as (vi, vj):
            Y[8 - vi, vj] = cast(X[vi, vj], {narrow})
"""


@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
@pytest.mark.parametrize(
    ("wide", "narrow"),
    [("i32", "i8"), ("f32", "u8"), ("i32", "i16"), ("i64", "i32"), ("i64", "i8"), ("f32", "bf16")],
)
def test_a_store_of_one_lane_leaves_what_follows(wide, narrow, lanes):
    """The rest of a row is one element, and the row after it is there already."""
    kernel = parse(REVERSED.format(wide=wide, narrow=narrow, width=lanes + 1))
    sch = Schedule(kernel)
    vectors, columns = sch.split(sch.loops(sch.block("Y"))[-1], None, lanes, tail="mask")
    sch.unroll(vectors)  # then LLVM knows the mask
    sch.vectorize(columns)
    assert "masked.store" in kernel_text(legal_kernels(sch.kernel).kernels[0])
    assert_everywhere(kernel, sch)

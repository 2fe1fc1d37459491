"""`attrs_of_rows`: operators that call their rows independent give the same rows one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest

import ingot.ops  # noqa: F401  fills the table
from ingot.arith import expr as arith
from ingot.graph.opdef import TABLE, OpDef, Sample
from tests.ops.single import input_types, reference
from tests.ops.test_samples import assert_same

ONE = arith.Const(1)
EXPECTED = {  # operators of networks that run image by image
    "conv", "max_pool", "avg_pool", "matmul", "reduce_mean", "reshape", "transpose", "concat",
    "pad", "slice", "softmax", "layer_norm", "gather", "interleave", "add", "relu", "clip", "where",
}  # fmt: skip


def batches(sample: Sample) -> Iterator[tuple[int, tuple[int, ...]]]:
    """A number of rows, and the positions of operands that have so many: every choice."""
    rows = [0 if x is None or not x.ndim else len(x) for x in sample.inputs]
    for count in {n for n in rows if n > 1}:
        found = [i for i, n in enumerate(rows) if n == count]
        for length in range(1, len(found) + 1):
            yield from ((count, chosen) for chosen in combinations(found[:4], length))


def one_by_one(
    op: OpDef, sample: Sample, count: int, batched: tuple[int, ...]
) -> np.ndarray | None:
    """The result, computed row by row; None if the operator mixes rows."""
    attrs = op.attrs_of_rows(input_types(sample), sample.attrs, batched, ONE)
    if attrs is None:
        return None
    parts = []
    for row in range(count):
        inputs = [
            x if x is None or i not in batched else x[row : row + 1]
            for i, x in enumerate(sample.inputs)
        ]
        parts.append(reference(op, Sample(tuple(inputs), attrs))[0])
    return np.concatenate(parts)


def independent_cases(name: str) -> int:
    """The number of samples and choices that were compared."""
    op, compared = TABLE[name], 0
    for sample in op.samples():
        if sample.fails:
            continue
        whole = reference(op, sample)
        if len(whole) != 1 or not whole[0].ndim:
            continue
        for count, batched in batches(sample):
            rows = one_by_one(op, sample, count, batched) if len(whole[0]) == count else None
            if rows is not None:
                assert_same(name, sample, [rows], whole)
                compared += 1
    return compared


@pytest.mark.parametrize("name", sorted(TABLE))
def test_independent_rows_are_equal_one_by_one(name: str) -> None:
    compared = independent_cases(name)
    assert compared or name not in EXPECTED

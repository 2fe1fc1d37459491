"""Every case of com.microsoft's operators against ONNX Runtime: imported and interpreted, and
compiled (one case of some; all of them with -m long)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tests.contrib import (
    cases_attention,
    cases_fused,
    cases_group_query,
    cases_others,
    cases_qlinear,
    cases_qmatmul,
)
from tests.contrib.harness import Case, compare, compiled, expected, interpreted

MODULES = (
    cases_attention, cases_fused, cases_group_query, cases_others, cases_qlinear, cases_qmatmul,
)  # fmt: skip
CASES = [case for module in MODULES for case in module.CASES]
LEAST = 10  # cases of each operator


# operators that have kernels of their own kind
QUICK = (
    "Attention", "MultiHeadAttention", "GroupQueryAttention", "RotaryEmbedding", "FusedConv",
    "SkipLayerNormalization", "QLinearConv", "QLinearAdd", "DynamicQuantizeLSTM",
    "DynamicQuantizeMatMul", "Unique", "GatherBlockQuantized", "NGramRepeatBlock",
)  # fmt: skip
HALF = (
    "Attention", "MultiHeadAttention", "GroupQueryAttention", "RotaryEmbedding", "FusedConv",
    "FusedMatMul", "FusedGemm", "Gelu", "QuickGelu", "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization", "EmbedLayerNormalization", "GroupNorm", "MatMulNBits",
    "GatherBlockQuantized",
)  # fmt: skip


def one_of_each() -> list[Case]:
    """The dynamic case of each of these operators that comes first, else its first case."""
    found: dict[str, Case] = {}
    for case in sorted(CASES, key=lambda c: not c.dynamic):
        found.setdefault(case.op, case)
    return [found[op] for op in QUICK]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_interpreted(case: Case) -> None:
    compare(case, interpreted(case), expected(case))


@pytest.mark.parametrize("case", one_of_each(), ids=lambda c: c.op)
def test_compiled(case: Case) -> None:
    compare(case, compiled(case), expected(case))


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_compiled(case: Case) -> None:
    compare(case, compiled(case), expected(case))


HALF_TOLERANCE = 4e-3  # of the largest value: a few roundings of f16


@pytest.mark.parametrize("op", HALF)
def test_half_precision(op: str) -> None:
    """f16 operands against ONNX Runtime's result in f32."""
    case = next(c for c in CASES if c.op == op)
    small = [x.astype(np.float16) if x is not None and x.dtype == np.float32 else x
             for x in case.inputs]  # fmt: skip
    want, got = expected(case)[0], interpreted(replace(case, inputs=small))[0]
    assert got.dtype == np.float16
    assert np.abs(got - want).max() <= HALF_TOLERANCE * np.abs(want).max()


def test_there_are_enough_cases() -> None:
    few = {op: n for op, n in Counter(case.op for case in CASES).items() if n < LEAST}
    assert not few

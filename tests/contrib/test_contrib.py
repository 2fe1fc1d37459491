"""Every case of com.microsoft's operators against ONNX Runtime: imported and interpreted, and
compiled (one case of each operator; all of them with -m long)."""

from __future__ import annotations

from collections import Counter

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


def one_of_each() -> list[Case]:
    """The dynamic case of each operator that comes first, else its first case."""
    found: dict[str, Case] = {}
    for case in sorted(CASES, key=lambda c: not c.dynamic):
        found.setdefault(case.op, case)
    return list(found.values())


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


def test_there_are_enough_cases() -> None:
    few = {op: n for op, n in Counter(case.op for case in CASES).items() if n < LEAST}
    assert not few

"""Architectures of `transformers` versus eager: another few each day, all with `-m long`."""

from __future__ import annotations

import datetime

import pytest
import torch

from tests.conformance import records
from tests.torch.architectures import cases, results

EACH_DAY = 2


def check(case: str) -> None:
    found = cases.run_case(case, "ingot")
    torch._dynamo.reset()
    known = records.read(results.RESULTS).get(case)
    if known is None:
        assert results.kind(found) != records.GAP, found
    else:
        assert results.kind(found) == results.kind(known), found


def of_today() -> list[str]:
    every = sorted(case for case in records.read(results.RESULTS) if " small " in case)
    first = datetime.date.today().toordinal() * EACH_DAY
    return [every[(first + k) * 7 % len(every)] for k in range(EACH_DAY)]


@pytest.mark.parametrize("place", range(EACH_DAY))
def test_a_few_architectures(place):
    check(of_today()[place])


def test_every_gap_has_a_reason():
    found = records.read(results.RESULTS)
    assert not results.complaints(found, {})
    assert {case.split()[0] for case in found} <= cases.TABLE.keys()


@pytest.mark.long
@pytest.mark.parametrize("size", cases.SIZES)
@pytest.mark.parametrize("way", cases.WAYS)
@pytest.mark.parametrize("name", cases.TABLE)
def test_every_architecture(name, way, size):
    check(f"{name} {size} {way}")

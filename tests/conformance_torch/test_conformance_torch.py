"""A small part of PyTorch's suite, another one each day: cases are as results.json says."""

from __future__ import annotations

import datetime

import pytest

pytest.importorskip("expecttest")  # torch's own tests need it

from tests.conformance import records
from tests.conformance.workers import run_all
from tests.conformance_torch import results
from tests.conformance_torch.run import MODULE

PARTS = 400  # importing the samples takes longer than these cases


def test_a_part_of_the_suite_is_as_recorded():
    known = results.known()
    part = datetime.date.today().toordinal() % PARTS
    found = run_all(sorted(known)[part::PARTS], workers=1, module=MODULE)
    assert found
    differing = {name: found[name] for name in records.differing(found, known)}
    assert not differing, "run make conformance-torch; a gap that passes is recorded with --update"


def test_every_gap_has_a_reason():
    gaps = records.read(results.GAPS)
    assert not records.complaints(results.known(), gaps)

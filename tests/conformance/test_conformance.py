"""A twentieth of ONNX's suite, another one each day: cases are as results.json says."""

from __future__ import annotations

import datetime

from tests.conformance import records
from tests.conformance.workers import run_all

PARTS = 20


def test_a_twentieth_of_the_suite_is_as_recorded():
    known = records.read(records.RESULTS)
    part = datetime.date.today().toordinal() % PARTS
    found = run_all(sorted(known)[part::PARTS])
    differing = {name: found[name] for name in records.differing(found, known)}
    assert not differing, "run make conformance; a gap that passes is recorded with --update"
    assert sum(records.kind(r) != records.GAP for r in found.values()) > len(found) / 3

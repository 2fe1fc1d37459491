"""`ingot doctor` shows the machine that the cost model reads; --measure and --forget change it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingot.runtime.cpu import measured
from ingot.support import options
from tests.cli.test_commands import inside, succeed_inside
from tests.refusal import is_told


@pytest.fixture(autouse=True)
def folder(tmp_path: Path):
    with options.override(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"


def findings(*words: str) -> dict[str, dict[str, str]]:
    found = json.loads(succeed_inside("doctor", "--json", *words))["findings"]
    return {f["name"]: f for f in found if f["section"] == "machine model"}


def test_measure_then_forget(folder: Path):
    table = findings()
    assert is_told("table", table["machine"]["why"]) and "measured" not in table
    rows = findings("--measure")
    rates = measured.find().rates
    assert rates is not None
    assert is_told("measured", rows["machine"]["value"])
    assert is_told(str(folder), rows["machine"]["why"])
    assert rows["clock"]["value"] == f"{rates.clock_ghz:g} GHz"
    assert rows["memory rate"]["value"] == f"{rates.memory_bytes_per_ns:g} GB/s"
    with options.override(off={"measured_machine"}):
        assert is_told("INGOT_OFF", findings()["machine"]["why"])
    assert findings("--forget") == table and measured.find().rates is None


def test_a_damaged_file_is_reported():
    path = measured.store(measured.Rates(3.0, (64.0,), 8.0, 20.0))
    Path(path).write_text("{")
    rows = findings()
    assert rows["measured"]["state"] == "none" and rows["measured"]["value"] == path
    assert is_told("damaged", rows["measured"]["why"])
    assert is_told("table", rows["machine"]["why"])


def test_measure_and_forget_exclude_each_other():
    done = inside("doctor", "--measure", "--forget")
    assert done.exit_code == 2 and "--forget" in done.output

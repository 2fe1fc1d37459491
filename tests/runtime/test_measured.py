"""The measured machine: stored for this host only, read by the host target only, part of the model
cache's keys; what is damaged, foreign or implausible is not used."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from ingot import api, backends, cache
from ingot.cli.measure import measure
from ingot.machine import GENERIC, of_processor
from ingot.runtime.cpu import measured
from ingot.runtime.cpu.measured import RANGES, Rates
from ingot.support import identity, options
from tests.refusal import is_told, refused
from tests.small import small_model

RATES = Rates(3.25, (96.0, 48.0, 12.5), 9.5, 31.0)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path):
    with options.override(cache_dir=str(tmp_path / "cache"), cache_models=True):
        yield tmp_path / "cache"


def machine_of(target: str):
    return backends.find(target).target(target).machine


def test_without_a_measurement_the_table_holds():
    assert measured.find().rates is None and not measured.find().problem
    assert machine_of("cpu") == of_processor(identity.processor())


def test_the_host_target_has_the_measured_rates():
    row = machine_of("cpu")
    assert Path(measured.store(RATES)) == Path(measured.find().path)
    assert measured.find().rates == RATES
    assert machine_of("cpu") == replace(row, name=f"{row.name}, measured", **asdict(RATES))
    assert machine_of("cpu+no-fma").clock_ghz == RATES.clock_ghz


def test_named_targets_do_not_have_them():
    measured.store(RATES)
    assert machine_of("x86-64-v3") == GENERIC and machine_of("c") == GENERIC


def test_they_can_be_switched_off_and_forgotten():
    row = machine_of("cpu")
    measured.store(RATES)
    with options.override(off={"measured_machine"}):
        assert machine_of("cpu") == row
    assert measured.forget() and not measured.forget()
    assert machine_of("cpu") == row


def test_they_outlive_the_cache_entries():
    measured.store(RATES)
    cache.clear()
    assert measured.find().rates == RATES


def test_another_processor_has_a_file_of_its_own(monkeypatch):
    here = measured.store(RATES)
    monkeypatch.setattr(identity, "processor", lambda: "x86_64; vendor_id : GenuineIntel")
    assert measured.find().rates is None and not measured.find().problem
    there = measured.store(replace(RATES, clock_ghz=2.0))
    assert here != there
    monkeypatch.undo()
    assert measured.find().rates == RATES


def text_with(**changes) -> bytes:
    return json.dumps({"host": measured.host(), "rates": {**asdict(RATES), **changes}}).encode()


FOREIGN = {**measured.host(), "cores": 999}
UNUSABLE = {
    "empty": (b"", "damaged"),
    "no text": (b"\xff\xfe\x00", "damaged"),
    "no table": (b"[1, 2]", "damaged"),
    "too deep": (b"[" * 100_000, "damaged"),
    "no rates": (json.dumps({"host": measured.host()}).encode(), "rates"),
    "an unknown field": (text_with(watts=3.0), "watts"),
    "no list": (text_with(cache_bytes_per_cycle=3.0), "damaged"),
    "no levels": (text_with(cache_bytes_per_cycle=[]), "cache_bytes_per_cycle"),
    "no number": (text_with(clock_ghz="3"), "clock_ghz"),
    "a truth value": (text_with(clock_ghz=True), "clock_ghz"),
    "nan": (text_with(memory_bytes_per_ns=float("nan")), "memory_bytes_per_ns"),
    "out of range": (text_with(core_memory_bytes_per_ns=1e9), "core_memory_bytes_per_ns"),
    "foreign": (json.dumps({"host": FOREIGN, "rates": asdict(RATES)}).encode(), "another machine"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_file_is_ignored_with_a_reason(name: str):
    row = machine_of("cpu")
    text, fact = UNUSABLE[name]
    Path(measured.store(RATES)).write_bytes(text)
    assert machine_of("cpu") == row
    found = measured.find()
    assert found.rates is None and is_told(fact, found.problem), found
    measured.store(RATES)
    assert measured.find().rates == RATES and not measured.find().problem


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("rate", [0.0, -3.0, 1e9, float("nan")])
def test_implausible_rates_are_not_stored(name: str, rate: float):
    wrong = (50.0, rate) if name == "cache_bytes_per_cycle" else rate
    with refused("limit", name):
        measured.store(replace(RATES, **{name: wrong}))
    assert measured.find() == measured.Stored(measured.find().path)


def test_without_a_folder_nothing_is_stored():
    with options.override(cache_dir="off"):
        assert measured.find() == measured.Stored("")
        with refused("bad-option", hint="INGOT_CACHE_DIR"):
            measured.store(RATES)


def test_another_machine_is_another_cache_key(tmp_path: Path):
    model = tmp_path / "model.onnx"
    model.write_bytes(small_model().SerializeToString())

    def request() -> cache.Request:
        found = cache.request(model, api.key_options("cpu"))
        assert found is not None
        return found

    keys = [request().key]
    for rates in (RATES, replace(RATES, memory_bytes_per_ns=30.0)):
        measured.store(rates)
        keys.append(request().key)
    assert len(set(keys)) == 3
    measured.forget()
    assert request().key == keys[0]


def test_a_real_measurement_is_plausible():
    rates = measure()
    measured.check(rates)
    assert len(rates.cache_bytes_per_cycle) == len(backends.find("cpu").target("cpu").caches)
    measured.store(rates)
    assert measured.find().rates == rates

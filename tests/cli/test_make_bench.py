"""`make bench`: the table it makes of real and of made-up results, and where it puts it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import models, peers

ROOT = Path(__file__).parents[2]


def entry(runtime: str, threads: int, time_ms: float, **more) -> dict:
    usual = {"version": "1.0", "refused": "", "agrees": None, peers.SPEEDUP: None}
    return {"runtime": runtime, "threads": threads, "time_ms": time_ms, **usual, **more}


def results(*entries: dict) -> dict:
    return {"machine": "a machine", "models": [{"name": "m", "exit_code": 0, "entries": entries}]}


OURS = entry("ingot", 1, 12.34, load_s=7.5, cached_s=0.25, peak_bytes=5e7, agrees=True,
             distance=3e-7, **{peers.SPEEDUP: 2.0})  # fmt: skip


def test_a_real_contest_becomes_a_table(tmp_path: Path):
    said: list[str] = []
    peers.main(["digits", "--threads", "1", "--rounds", "1", "--out", str(tmp_path)], said.append)
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| digits \|.*$", table, re.M)
    assert len(row.split("|")) == len(peers.HEAD) + 2 and "refused" not in row
    assert "with 1 thread." in said[-2] and "onnxruntime" in table
    kept = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert kept["models"][0]["exit_code"] == 0 and len(kept["models"][0]["entries"]) == 3


def test_rows():
    tables = peers.tables(results(OURS, entry("onnxruntime", 1, 24.68), entry("openvino", 1, 30.0)))
    assert "| m | 1 | 12.3 | 24.7 | 30.0 | - | 2.00 | 7.5 | 0.25 | 50 | 3e-07 |" in tables["full"]
    assert "| m | 1 | 12.3 | 24.7 (onnxruntime) | 2.00 |" in tables["short"]
    assert "2.00 with 1 thread." in tables["full"] and "a machine" in tables["full"]


def test_refusals_and_disagreement_are_in_the_table():
    bad = {**OURS, "agrees": False, "distance": 0.5}
    refused = entry("openvino", 1, 0, refused="it cannot")
    tables = peers.tables(results(bad, refused))
    assert "DISAGREES 5e-01" in tables["full"] and "| refused |" in tables["full"]
    failed = {"name": "m", "exit_code": 1, "error": {"code": "unsupported-op"}}
    assert "m (unsupported-op)" in peers.tables({"machine": "", "models": [failed]})["full"]


def test_the_pages_have_a_place_for_the_table():
    for page, name in peers.PAGES.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        filled = peers.fill(text, name, "| the table |")
        assert "| the table |" in filled and peers.fill(filled, name, "").count(name) >= 1
    with pytest.raises(SystemExit, match="bench: full"):
        peers.fill("no marks", "full", "")


def test_unknown_models_are_refused(capsys):
    with pytest.raises(SystemExit):
        peers.read_arguments(["nonesuch"])
    assert "nonesuch" in capsys.readouterr().err
    assert {"digits", "resnet50"} <= set(models.NAMES)

"""`make bench`: the table it makes of real and of made-up results, and where it puts it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import models, peers, tables

ROOT = Path(__file__).parents[2]


def entry(runtime: str, threads: int, time_ms: float, **more) -> dict:
    usual = {"version": "1.0", "failure": "", "agrees": None, tables.SPEEDUP: None}
    return {"runtime": runtime, "threads": threads, "time_ms": time_ms, **usual, **more}


def results(*entries: dict) -> dict:
    return {"machine": "a machine", "models": [{"name": "m", "exit_code": 0, "entries": entries}]}


OURS = entry("ingot", 1, 12.34, load_s=7.5, cached_s=0.25, peak_bytes=5e7, agrees=True,
             distance=3e-7, error=3e-7, **{tables.SPEEDUP: 2.0})  # fmt: skip


def test_a_real_benchmark_becomes_a_table(tmp_path: Path):
    said: list[str] = []
    peers.main(["digits", "--threads", "1", "--rounds", "1", "--out", str(tmp_path)], said.append)
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| digits \|.*$", table, re.M)
    assert len(row.split("|")) == len(tables.HEAD) + 2 and "failed" not in row
    assert re.search(r"\| 0\.00062\d* \| \d+ % of \w+ \| \de-0\d \| \d+\.\d \|", row), row
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert "with 1 thread (- for models" in said[-2] and "onnxruntime" in table
    kept = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert kept["models"][0]["exit_code"] == 0 and len(kept["models"][0]["entries"]) == 3


def test_rows():
    ort = entry("onnxruntime", 1, 24.68, error=2e-7)
    made = tables.tables(results(OURS, ort, entry("openvino", 1, 30.0)))
    times = "| m | 1 | 12.3 | 24.7 | 30.0 | - | 2.00 "
    assert f"{times}| - | - | 3e-07 | 1.5 | 7.5 | 0.25 | 50 | 3e-07 |" in made["full"]
    assert "| m | 1 | 12.3 | 24.7 (onnxruntime) | 2.00 |" in made["short"]
    assert "2.00 with 1 thread (2.00" in made["full"] and "a machine" in made["full"]


def test_the_mean_is_geometric():
    found = [
        {"threads": 2, "ingot": {tables.SPEEDUP: x, "time_ms": ms}}
        for x, ms in ((0.5, 1.5), (8.0, 0.9))
    ]
    line = "2.00 with 2 threads (0.50 for models of 1 ms or more)"
    assert line in tables.mean_line(found)


def test_the_roofline_is_what_takes_longer():
    rates = [{"name": "gemm", "threads": 2, "per_second": 100e9},
             {"name": "bandwidth", "threads": 2, "per_second": 10e9}]  # fmt: skip
    work = {"useful_flops": 1e9, "weights_bytes": 50e6}
    result = {"roofline": rates, "facts": work}
    assert tables.roofline(result, 2, 20.0) == (pytest.approx(0.5), "gemm")
    assert tables.roofline({**result, "facts": {**work, "weights_bytes": 150e6}}, 2, 20.0) == (
        pytest.approx(0.75), "bandwidth",
    )  # fmt: skip
    assert tables.roofline(result, 1, 20.0) is None and tables.roofline(result, 2, None) is None


def test_torch_takes_part_at_the_sizes_its_file_has(tmp_path: Path):
    assert "--torch" in models.make("tiny_mlp", tmp_path).options
    at_eight = models.make("tiny_mlp-8", tmp_path)
    assert "--torch" not in at_eight.options and at_eight.sizes == {"batch": 8}


def test_names_with_a_batch():
    assert models.split("unet-8") == ("unet", 8) and models.split("unet") == ("unet", None)
    assert models.is_known("digits-64") and not models.is_known("light_resnet50-8")
    assert models.at_batches(["unet", "light_resnet50"], [1, 8]) == [
        "unet", "light_resnet50", "unet-8",
    ]  # fmt: skip
    assert all(map(models.is_known, (*models.DEFAULT, *models.DEFAULT_BATCHES)))
    assert peers.read_arguments([]).cases() == [*models.DEFAULT, *models.DEFAULT_BATCHES]
    assert peers.read_arguments(["unet", "--batch", "8"]).cases() == ["unet-8"]


def test_failures_and_differing_outputs_are_in_the_table():
    bad = {**OURS, "agrees": False, "distance": 0.5}
    failure = entry("openvino", 1, 0, failure="it cannot")
    made = tables.tables(results(bad, failure))
    assert "DIFFERS 5e-01" in made["full"] and "| failed |" in made["full"]
    failed = {"name": "m", "exit_code": 1, "error": {"code": "unsupported-op"}}
    assert "m (unsupported-op)" in tables.tables({"machine": "", "models": [failed]})["full"]


def test_the_pages_have_a_place_for_the_table():
    for page, name in tables.PAGES.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        filled = tables.fill(text, name, "| the table |")
        assert "| the table |" in filled and tables.fill(filled, name, "").count(name) >= 1
    with pytest.raises(SystemExit, match="bench: full"):
        tables.fill("no marks", "full", "")


def test_unknown_models_are_refused(capsys):
    with pytest.raises(SystemExit):
        peers.read_arguments(["nonesuch"])
    assert "nonesuch" in capsys.readouterr().err
    assert {"digits", "resnet50"} <= set(models.NAMES)


def test_a_run_is_added_to_what_others_found():
    """What it measured again replaces; other numbers of threads stay."""

    def result(threads: int, time_ms: float) -> dict:
        return {"name": "m", "entries": [{"threads": threads, "time_ms": time_ms}],
                "roofline": [{"threads": threads, "name": "gemm"}]}  # fmt: skip

    both = peers.merged(result(2, 1.0), result(1, 2.0))
    assert [(e["threads"], e["time_ms"]) for e in both["entries"]] == [(1, 2.0), (2, 1.0)]
    again = peers.merged(both, result(2, 3.0))
    assert [(e["threads"], e["time_ms"]) for e in again["entries"]] == [(1, 2.0), (2, 3.0)]
    assert len(again["roofline"]) == 2
    assert peers.merged({}, result(2, 1.0)) == result(2, 1.0)


@pytest.mark.parametrize("option", ["--add", "--fill"])
def test_without_earlier_results_nothing_is_added_or_filled_in(option: str, tmp_path: Path, capsys):
    with pytest.raises(SystemExit):
        peers.main([option, "digits", "--out", str(tmp_path)])
    assert str(tmp_path) in capsys.readouterr().err

"""`make bench`: the tables it makes of real and of made-up results, and where it puts them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import ingot
from benchmarks import dynamic, models, peers, result_files, rows, tables
from benchmarks.zoo import exported

ROOT = Path(__file__).parents[2]
ABOUT = {
    "processor": "A CPU (tm)", "cores": 2, "isa": "avx2", "vectors": "256 bits", "system": "Linux",
    "python": "3.12", "llvm": "LLVM 22", "commit": "abc", "date": "2026-01-02",
    "command": "python benchmarks/peers.py", "rounds": 9, "threads": "1,2",
}  # fmt: skip


def entry(runtime: str, threads: int, time_ms: float | None, **more) -> dict:
    usual = {"version": "1.0", "failure": "", "agrees": None, "uses": [], "p99_ms": None,
             "load_s": 0.5, "first_s": 0.02, "peak_bytes": 5e7}  # fmt: skip
    return {"runtime": runtime, "threads": threads, "time_ms": time_ms, **usual, **more}


def results(*entries: dict, name: str = "m", **more) -> dict:
    return {"about": ABOUT, "models": [{"name": name, "exit_code": 0, "entries": entries, **more}]}


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("| \n").split("|")]


def table_row(table: str, name: str, head: tuple[str, ...]) -> dict[str, str]:
    (line,) = re.findall(rf"^\| {re.escape(name)} .*$", table, re.M)
    assert len(cells(line)) == len(head), line
    return dict(zip(head, cells(line)))


OURS = entry("ingot", 2, 12.34, load_s=7.5, cached_s=0.25, agrees=True, distance=3e-7, error=3e-7,
             uses=["winograd"])  # fmt: skip


# --- a real run -----------------------------------------------------------------------------------


def test_a_real_benchmark_becomes_a_table(tmp_path: Path):
    said: list[str] = []
    words = ["digits-16", "--threads", "1", "--rounds", "2", "--round-s", "0.02"]
    peers.main([*words, "--out", str(tmp_path)], said.append)
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    row = table_row(table, "digits-16 ᵂ", tables.HEAD)
    for column in ("Ingot ms", "ONNX Runtime ms", "OpenVINO ms", "without Winograd ms",
                   "speedup vs best peer", "Ingot / Ingot", "error / ONNX Runtime's"):  # fmt: skip
        assert float(row[column]) > 0, (column, row)
    assert re.fullmatch(r"\d+ % of (FMA|bandwidth)", row["of roofline"])
    assert row["torch ms"] == "-" and "onnxruntime" in table and "against itself" in table
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "results.json").read_text(encoding="utf-8")
    kept = json.loads(text)
    (model,) = kept["models"]
    assert model["exit_code"] == 0 and str(ROOT) not in text and str(tmp_path) not in text
    found = {e["runtime"]: e for e in model["entries"]}
    assert set(found) == {
        "ingot",
        "ingot-again",
        "ingot-without-winograd",
        "onnxruntime",
        "openvino",
    }
    for each in found.values():
        assert each["first_s"] > 0 and each["load_s"] > 0 and each["peak_bytes"] > 1e7
        assert each["calls"] >= 2 and len(each["rounds_ms"]) == 2
    assert {"processor", "isa", "llvm", "commit", "minutes"} <= set(kept["about"])
    assert tables.loading(kept).count("\n") == 2 and result_files.file_name(kept["about"])


@pytest.mark.long  # torch.compile runs a C++ compiler
def test_modules_versus_torch(tmp_path: Path):
    words = ["--from-torch", "tiny_mlp", "--rounds", "1", "--round-s", "0.02"]
    peers.main([*words, "--out", str(tmp_path)], lambda line: None)
    table = (tmp_path / "table-torch.md").read_text(encoding="utf-8")
    row = table_row(table, "tiny_mlp", tables.TORCH_HEAD)
    assert row.pop("channels-last ms") == "-"
    assert all(float(cell) > 0 for name, cell in row.items() if name != "model"), row
    (model,) = json.loads((tmp_path / "results-torch.json").read_text(encoding="utf-8"))["models"]
    assert all(e["agrees"] for e in model["entries"] if e["runtime"] != "torch-eager")


@pytest.mark.long  # torch.compile runs a C++ compiler
def test_call_overhead():
    found = result_files.run_json("benchmarks.call_overhead", "--json", "--rounds", "1")
    assert found.pop("exit_code") == 0 and all(us > 0 for us in found.values())
    assert sum(name.startswith("MLP: ") for name in found) == 4


def test_one_dynamic_export_versus_fixed_ones():
    made = ingot.compile(exported.program(exported.NETWORKS["tiny_mlp"]), threads=1)
    for batch in (1, 3):
        result = dynamic.compare_module("tiny_mlp", made, {"batch": batch}, rounds=1, threads=1)
        name, sizes, *figures = dynamic.cells(result)
        assert (name, sizes) == ("tiny_mlp", f"batch={batch}") and len(result["rounds_ms"]) == 1
        assert len(figures) == len(dynamic.HEAD) - 2 and "-" not in figures


# --- tables ---------------------------------------------------------------------------------------


def test_each_runtime_counts_at_its_best_thread_count():
    made = tables.full(results(
        OURS, entry("ingot", 1, 20.0), entry("ingot-again", 2, 12.34 * 1.02),
        entry("ingot-again", 1, 10.0), entry("ingot-without-winograd", 2, 18.51),
        entry("ingot-module", 2, 12.5), entry("onnxruntime", 2, 30.0, error=2e-7),
        entry("onnxruntime", 1, 24.68, error=2e-7), entry("openvino", 2, 40.0),
        entry("torch-eager", 2, 70.0), entry("torch-compile", 2, 50.0),
    ))  # fmt: skip
    row = table_row(made, "m ᵂ", tables.HEAD)
    assert row["Ingot ms"] == "12.3" and row["from the module ms"] == "12.5"
    assert row["ONNX Runtime ms"] == "24.7 (1 thread)" and row["OpenVINO ms"] == "40.0"
    assert row["torch ms"] == "50.0 (compile)" and row["speedup vs best peer"] == "2.00"
    assert row["Ingot / Ingot"] == "1.02" and row["without Winograd ms"] == "18.5"
    assert row["error / ONNX Runtime's"] == "1.5" and row["of roofline"] == "-"
    assert "models of 1 ms or more: 2.00 (2.00 m to 2.00 m; 1 rows)" in made
    assert "1.02 at most (m)" in made and "A CPU (tm), 2 cores, avx2" in made
    short = tables.short(results(OURS, entry("onnxruntime", 1, 24.68)))
    assert "| m | 12.3 | 24.7 (onnxruntime) | 2.00 |" in short


def test_p99_where_there_is_one():
    made = results({**OURS, "p99_ms": 13.0}, entry("onnxruntime", 2, 24.0, p99_ms=31.0))
    column = "p99 ms: Ingot, best peer"
    assert table_row(tables.full(made), "m ᵂ", tables.HEAD)[column] == "13.0, 31.0"
    assert table_row(tables.full(results(OURS)), "m ᵂ", tables.HEAD)[column] == "-"


def test_loading():
    made = tables.loading(results(OURS, entry("onnxruntime", 2, 24.0, first_s=0.001)))
    row = table_row(made, "m", tables.LOADING_HEAD)
    assert row["Ingot: compile s"] == "7.5" and row["Ingot, cached"] == "0.25 / 20 / 50"
    assert row["ONNX Runtime"] == "0.50 / 1.0 / 50" and row["OpenVINO"] == row["torch"] == "-"


def test_modules_have_their_table():
    made = tables.torch_table(results(
        entry("ingot", 2, 10.0, load_s=3.0, first_s=1.0), entry("ingot-backend", 2, 12.0),
        entry("torch-eager", 2, 40.0), entry("torch-channels-last", 2, 30.0),
        entry("torch-compile", 2, 24.0, load_s=1.0, first_s=15.0), entry("torch-freezing", 2, 20.0),
    ))  # fmt: skip
    row = table_row(made, "m", tables.TORCH_HEAD)
    assert row["speedup"] == "2.00" and row['speedup, backend="ingot"'] == "1.67"
    assert row["eager ms"] == "40.0" and row["freezing ms"] == "20.0"
    assert row["Ingot: compile s"] == "4.0" and row["torch.compile: s"] == "16.0"
    assert "mean 2.00, lowest 2.00 (m); compiling takes 0.25 of" in made


def test_the_mean_is_geometric_with_its_spread():
    found = [
        {"model": name, "speedup": x, "best": {"ingot": {"time_ms": ms}}}
        for name, x, ms in (("a", 0.5, 1.5), ("b", 8.0, 0.9), ("c", 2.0, 1.0))
    ]
    line = rows.mean_line(found)
    assert "1 ms or more: 1.00 (0.50 a to 2.00 c; 2 rows)" in line
    assert "All models: 2.00 (0.50 a to 8.00 b; 3 rows)" in line


def test_the_roofline_is_what_takes_longer():
    rates = [{"name": "fma", "threads": 2, "per_second": 100e9},
             {"name": "bandwidth", "threads": 2, "per_second": 10e9}]  # fmt: skip
    work = {"useful_flops": 1e9, "weights_bytes": 50e6}
    result = {"roofline": rates, "facts": work}
    assert rows.roofline(result, 2, 20.0) == (pytest.approx(0.5), "fma")
    assert rows.roofline({**result, "facts": {**work, "weights_bytes": 150e6}}, 2, 20.0) == (
        pytest.approx(0.75), "bandwidth",
    )  # fmt: skip
    assert rows.roofline(result, 1, 20.0) is None and rows.roofline(result, 2, None) is None


def test_failures_and_differing_outputs_are_in_the_table():
    bad = {**OURS, "agrees": False, "distance": 0.5}
    failure = entry("openvino", 1, None, failure="it cannot\nat line 3")
    made = tables.full(results(bad, failure))
    assert "DIFFERS 5e-01" in made and "| failed |" in made
    assert "openvino failed on m: it cannot\n" in made
    failed = {"name": "m", "exit_code": 1, "error": {"code": "unsupported-op"}}
    assert "m (unsupported-op)" in tables.full({"about": ABOUT, "models": [failed]})


# --- models ---------------------------------------------------------------------------------------


def test_torch_takes_part_at_the_sizes_its_file_has(tmp_path: Path):
    assert models.make("tiny_mlp", tmp_path).torch_file() is not None
    at_eight = models.make("tiny_mlp-8", tmp_path)
    assert at_eight.torch_file() is None and at_eight.sizes == {"batch": 8}
    dynamic = models.make("tiny_mlp-dynamic", tmp_path)
    assert dynamic.torch_file() is None and "--dynamic" in dynamic.options
    choice = peers.read_arguments([])
    assert "torch" in choice.peers_of(models.make("tiny_mlp", tmp_path))
    assert "torch" not in choice.peers_of(models.make("tiny_cnn", tmp_path))
    whole = peers.read_arguments(["--torch", "all"])
    assert "torch" in whole.peers_of(models.make("tiny_cnn", tmp_path))


def test_names_of_cases():
    assert models.split("unet-8") == ("unet", 8) and models.split("unet") == ("unet", None)
    assert models.split("unet-dynamic") == ("unet", None)
    assert models.is_known("digits-64") and not models.is_known("light_resnet50-8")
    assert models.at_batches(["unet", "light_resnet50"], [1, 8]) == [
        "unet", "light_resnet50", "unet-8",
    ]  # fmt: skip
    assert all(map(models.is_known, models.DEFAULT)) and len(models.WITH_TORCH) == 6
    assert peers.read_arguments([]).cases() == list(models.DEFAULT)
    assert peers.read_arguments(["unet", "--batch", "8"]).cases() == ["unet-8"]
    assert set(peers.read_arguments(["--from-torch"]).cases()) >= set(models.WITH_TORCH)


def test_thread_counts():
    assert [peers.thread_counts(n) for n in (1, 2, 3, 8)] == [[1], [1, 2], [1, 2, 3], [1, 2, 4, 8]]


def test_unknown_models_are_refused(capsys):
    with pytest.raises(SystemExit):
        peers.read_arguments(["nonesuch"])
    assert "nonesuch" in capsys.readouterr().err
    assert {"digits", "resnet50"} <= set(models.NAMES)


# --- published results ----------------------------------------------------------------------------


def test_the_pages_are_made_from_the_published_results(tmp_path: Path):
    name = result_files.file_name(ABOUT)
    assert name == "a-cpu-tm-2-cores-avx2"
    onnx = {**results(OURS, entry("onnxruntime", 2, 24.0)), "overhead_us": {"a call": 1.25}}
    result_files.write(onnx, tmp_path / f"{name}.json")
    module = results(entry("ingot", 2, 10.0), entry("torch-compile", 2, 20.0), name="module")
    result_files.write(module, tmp_path / f"{name}-torch.json")
    assert result_files.published("", tmp_path) == [json.loads(json.dumps(onnx))]
    page = tables.filled("docs/performance.md", tmp_path)
    assert "| m ᵂ | 12.3 |" in page and "| module | 10.0 |" in page and "| a call | 1.2 |" in page
    assert tables.NOTHING not in page
    assert "| m | 12.3 | 24.0 (onnxruntime) |" in tables.filled("README.md", tmp_path)
    with pytest.raises(SystemExit, match="bench: full"):
        tables.fill("no marks", "full", "")


def test_two_machines_have_a_table_each(tmp_path: Path):
    for isa in ("avx2", "avx512"):
        made = {**results(OURS), "about": {**ABOUT, "isa": isa}}
        result_files.write(made, tmp_path / f"{isa}.json")
    made = tables.block("full", tmp_path)
    assert "**a-cpu-tm-2-cores-avx2**" in made and "**a-cpu-tm-2-cores-avx512**" in made


def test_the_docs_have_what_is_published():
    """--fill was run after the results changed; they are small, and without paths."""
    for file in result_files.FOLDER.glob("*.json"):
        text = file.read_text(encoding="utf-8")
        assert len(text) < 300_000 and "/home/" not in text and "/tmp/" not in text, file
        assert file.stem.startswith(result_files.file_name(json.loads(text)["about"]))
    for page, blocks in tables.PAGES.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        for name in blocks:
            if result_files.published(tables.BLOCKS[name][0]):
                assert f"<!-- bench: {name} -->\n{tables.block(name)}\n<!-- bench: end" in text, (
                    page
                )


def test_results_have_no_paths_and_few_digits():
    dirty = {"a": 1.23456789, "model": "/x/y.onnx", "failure": f"no {ROOT}/a.py nor /opt/b/c.so"}
    assert result_files.cleaned({"m": [dirty]}) == {
        "m": [{"a": 1.235, "failure": "no a.py nor c.so"}]
    }

"""Benchmark Ingot versus ONNX Runtime on trained models, sizes dynamic: `make bench-trained`.

    python -m benchmarks.trained                     all models, 2 threads, 5 rounds
    python -m benchmarks.trained silero ocr          those whose name contains one of the words
    python -m benchmarks.trained --static            sizes fixed
    python -m benchmarks.trained --threads 1

Each model is timed by `ingot bench`: every runtime in a process of its own, in interleaved rounds.
Outputs may differ by 1e-3 of the largest value, or by four times what two optimisation levels of
ONNX Runtime differ by; errors against float64 are in the table (exact.py). Results are in
build/bench/trained.json.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.trained.files import Trained, models
from benchmarks.trained.inputs import feeds_of
from benchmarks.zoo.common import zoo_folder
from ingot.support.text import columns

ROOT = Path(__file__).parents[2]
OUT = ROOT / "build" / "bench" / "trained.json"
SHORTEST_MS = 0.05  # of ONNX Runtime: a shorter run times the call, not the model
TOLERANCE = 1e-3
HEAD = ("model", "ingot ms", "onnxruntime ms", "speedup", "compile s", "difference", "error",
        "onnxruntime's error")  # fmt: skip


def bench(model: Trained, threads: int, rounds: int, is_static: bool) -> dict[str, Any]:
    """The result of `ingot bench --json` for a model."""
    words = ["bench", str(model.path()), "--json", "--feeds", str(_feeds_file(model))]
    words += ["--threads", str(threads), "--rounds", str(rounds), "--peers", "onnxruntime"]
    facts = _run_json("benchmarks.trained.facts", model.name)
    words += ["--tolerance", str(max(TOLERANCE, 4 * facts.get("spread", 0.0)))]
    words += ["--exact", facts["exact"]] if facts.get("exact") else []
    words += [] if is_static else ["--dynamic"]
    return {"name": model.name, "package": model.package, **_run_json("ingot.cli", *words)}


def _feeds_file(model: Trained) -> Path:
    file = zoo_folder() / "trained" / f"{model.sha256}.npz"
    plain = {  # a file holds no Python objects
        name: array.astype(str) if array.dtype == object else array
        for name, array in feeds_of(model).items()
    }
    np.savez(file, **plain)  # type: ignore[arg-type]
    return file


def _run_json(module: str, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", module, *words], capture_output=True, text=True, cwd=ROOT
    )
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"error": done.stderr.strip() or f"exit code {done.returncode}"}


def cells(result: dict[str, Any]) -> tuple[str, ...]:
    entries = {entry["runtime"]: entry for entry in result.get("entries", ())}
    ours, theirs = entries.get("ingot"), entries.get("onnxruntime")
    if ours is None or theirs is None or ours["failure"]:
        why = result.get("error") or (ours or {}).get("failure") or "not run"
        text = why["what"] if isinstance(why, dict) else str(why)
        return (result["name"], " ".join(text.split())[:160])
    difference = f"{ours['distance']:.0e}" + ("" if ours["agrees"] else " DIFFERS")
    return (
        result["name"],
        *(f"{entry['time_ms']:.3f}" for entry in (ours, theirs)),
        f"{theirs['time_ms'] / ours['time_ms']:.2f}",
        f"{ours['load_s']:.1f}",
        difference,
        *("-" if e["error"] is None else f"{e['error']:.0e}" for e in (ours, theirs)),
    )


def summary(results: Sequence[dict[str, Any]]) -> str:
    """The geometric mean over packages of each package's geometric mean, and the slowest model."""
    ratios: dict[str, list[float]] = {}
    for result in results:
        entries = {e["runtime"]: e for e in result.get("entries", ()) if not e["failure"]}
        if len(entries) < 2 or entries["onnxruntime"]["time_ms"] < SHORTEST_MS:
            continue
        ratio = entries["onnxruntime"]["time_ms"] / entries["ingot"]["time_ms"]
        ratios.setdefault(result["package"], []).append(ratio)
    if not ratios:
        return "no model ran"
    everything = [ratio for found in ratios.values() for ratio in found]
    slow = sum(ratio < 0.95 for ratio in everything)
    mean = _mean([_mean(found) for found in ratios.values()])
    return (
        f"{mean:.2f} times as fast as ONNX Runtime: the geometric mean over {len(ratios)} packages "
        f"of {len(everything)} models; the least {min(everything):.2f}, {slow} below 0.95"
    )


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trained")
    parser.add_argument("words", nargs="*", metavar="WORD", help="part of a model's name")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--static", action="store_true", help="specialise for the sizes")
    given = parser.parse_args()
    chosen = [m for m in models() if not given.words or any(w in m.name for w in given.words)]
    results = []
    OUT.parent.mkdir(parents=True, exist_ok=True)
    for model in chosen:
        results.append(bench(model, given.threads, given.rounds, given.static))
        print("  ".join(cells(results[-1])), flush=True)
        OUT.write_text(json.dumps(results, indent=1), encoding="utf-8")
    print("\n".join(columns([HEAD, *(c for r in results if len(c := cells(r)) == len(HEAD))])))
    print(summary(results))


if __name__ == "__main__":
    main()

"""Benchmark Ingot versus its peers on quantised models: `make bench-quantised`.

    python -m benchmarks.quantised                         the static models, 2 threads, 5 rounds
    python -m benchmarks.quantised resnet50 detector       some
    python -m benchmarks.quantised --few                   three small ones, three rounds
    python -m benchmarks.quantised --dynamic               models quantised at run time
    python -m benchmarks.quantised --target x86-64-v3      AVX2: Ingot compiled for it, OpenVINO's
                                                           oneDNN capped; ONNX Runtime has no cap

Columns: medians of rounds in ms; `speedup`: the best peer's time over Ingot's; `noise`: the same
build of Ingot in another process over Ingot's; `f32 / int8`: Ingot's time of the network in f32
over that of the quantised one; then the largest difference of each runtime's outputs from those of
ONNX Runtime without optimisations, of the largest output (random networks amplify one flipped tie:
exactness.py). Results are in build/bench/quantised-TARGET.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.quantised import models
from benchmarks.quantised.rounds import CAPS, CHILD, Column, benchmark, columns_for
from benchmarks.quantised.saturation import EXACT, middle_of
from benchmarks.rows import geometric_mean
from benchmarks.tables import figure
from ingot import backends
from ingot.cli.peers.rounds import BenchOptions, Entry
from ingot.support.text import columns as in_columns

OUT = models.ROOT / "build" / "bench"
LEVELS = ("avx2", "avxvnni", "avx512f", "avx512vnni", "avx512vbmi", "avx512bf16", "amx-int8",
          "neon", "dotprod", "i8mm")  # features that decide how fast 8-bit code is  # fmt: skip
RATIOS = ("speedup", "noise", "f32 / int8")


@dataclass
class Choice:
    names: list[str]
    target: str
    threads: int
    rounds: int
    round_s: float
    peers: str
    few: bool
    dynamic: bool

    def cases(self) -> list[str]:
        if self.names:
            return self.names
        if self.few:
            return list(models.FEW)
        return [m.name for m in (models.DYNAMIC if self.dynamic else models.STATIC)]


def result_of(name: str, found: Sequence[Entry], columns: Sequence[Column]) -> dict[str, Any]:
    entries = {entry.runtime: entry for entry in found}
    times = {label: entry.time_ms for label, entry in entries.items()}
    peers = [t for c in columns if c.is_peer and (t := times.get(c.label))]
    ours = times.get("ingot")
    over = {"speedup": min(peers, default=None), "noise": times.get("again"),
            "f32 / int8": times.get("f32")}  # fmt: skip
    ratios = {key: value / ours if value and ours else None for key, value in over.items()}
    rows = [{**asdict(entry), "time_ms": entry.time_ms} for entry in found]
    return {"name": name, "entries": rows, **ratios}


def head(columns: Sequence[Column]) -> tuple[str, ...]:
    labels = [c.label for c in columns]
    return ("model", *(f"{label} ms" for label in labels), *RATIOS,
            *(f"{label} differs" for label in labels if label not in ("again", "f32")))  # fmt: skip


def cells(result: dict[str, Any], columns: Sequence[Column]) -> tuple[str, ...]:
    entries = {entry["runtime"]: entry for entry in result["entries"]}
    rows = [(c.label, entries.get(c.label, {})) for c in columns]
    times = ["failed" if e.get("failure") else figure(e.get("time_ms"), ".3f") for _, e in rows]
    apart = [figure(e.get("distance"), ".0e") for n, e in rows if n not in ("again", "f32")]
    return (result["name"], *times, *(figure(result[key], ".2f") for key in RATIOS), *apart)


def summary(results: Sequence[dict[str, Any]]) -> list[str]:
    lines = []
    for key in RATIOS:
        found = sorted((r[key], r["name"]) for r in results if r[key])
        if found:
            mean = geometric_mean([value for value, _ in found])
            least = f"least {found[0][0]:.2f} ({found[0][1]})"
            lines.append(f"{key}: geometric mean {mean:.2f} of {len(found)} models, {least}")
    return lines


def instruction_set(name: str) -> str:
    """What 8-bit code for a target may use."""
    target = backends.find("cpu").target(name)
    return f"{target.name}: {' '.join(f for f in LEVELS if target.has(f)) or 'no vectors of note'}"


def saturation(columns: Sequence[Column]) -> list[str]:
    """Runtimes whose 8-bit sums saturate, as a model with numbers at the ends of ranges shows."""
    lines = []
    for column in (c for c in columns if not c.is_float and c.label != "again"):
        with tempfile.TemporaryDirectory(prefix="ingot-saturation-") as scratch:
            found = middle_of(column.runtime, CHILD, Path(scratch))
        verdict = "exact" if found == EXACT else "failed" if found is None else "SATURATES"
        lines.append(f"{column.runtime}: {found or 0:g} where {EXACT} is exact: {verdict}")
    return lines


def read_arguments(words: Sequence[str] | None = None) -> Choice:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantised")
    parser.add_argument("names", nargs="*", metavar="MODEL", help=", ".join(models.MODELS))
    parser.add_argument("--target", default="cpu", choices=("cpu", *CAPS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=None, help="default: 5; 3 with --few")
    parser.add_argument("--round-s", type=float, default=0.3, help="of one runtime in a round")
    parser.add_argument("--peers", default="onnxruntime,openvino")
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--dynamic", action="store_true", help="models quantised at run time")
    choice = Choice(**vars(parser.parse_args(words)))
    unknown = [name for name in choice.names if name not in models.MODELS]
    if unknown:
        parser.error(f"no model is called {', '.join(unknown)}")
    choice.rounds = choice.rounds or (3 if choice.few else 5)
    return choice


def main(words: Sequence[str] | None = None) -> None:
    choice = read_arguments(words)
    columns = columns_for(choice.target, [p for p in choice.peers.split(",") if p])
    options = BenchOptions(choice.rounds, choice.round_s)
    print(f"{instruction_set(choice.target)}; threads: {choice.threads}, rounds: {choice.rounds}")
    file: Path = OUT / f"quantised-{choice.target}{'-dynamic' if choice.dynamic else ''}.json"
    OUT.mkdir(parents=True, exist_ok=True)
    print("\n".join(found := saturation(columns)), flush=True)
    results: list[dict[str, Any]] = []
    for name in choice.cases():
        entries = benchmark(models.make(name), columns, choice.threads, options)
        results.append(result_of(name, entries, columns))
        print("  ".join(cells(results[-1], columns)), flush=True)
        for entry in entries:
            if entry.failure:
                print(f"  {entry.runtime} failed: {entry.failure}")
        about = {"instruction set": instruction_set(choice.target), "threads": choice.threads,
                 "saturation": found}  # fmt: skip
        file.write_text(json.dumps({**about, "models": results}, indent=1), encoding="utf-8")
    print("\n".join(in_columns([head(columns), *(cells(r, columns) for r in results)])))
    print("\n".join(summary(results)))
    print(f"all rounds are in {file}")


if __name__ == "__main__":
    main()

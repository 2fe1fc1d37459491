"""Ingot and its peers on a list of models: `make bench`. In: models by name. Out: a table, JSON.

    python benchmarks/peers.py                        all models, 1 and 2 threads, 5 rounds
    python benchmarks/peers.py digits resnet50        some of them
    python benchmarks/peers.py --fill                 put the last table into the docs

Each model goes through `ingot bench`, which holds the contest. Results are in build/bench:
results.json (everything), table.md (what the docs show).
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import models  # noqa: E402  # this file is run by its path
from ingot.support.text import columns  # noqa: E402

OURS, PEERS = "ingot", ("onnxruntime", "openvino", "torch")
SPEEDUP = "speedup_over_best_peer"  # its time over Ingot's: above 1, Ingot is quicker
HEAD = ("model", "threads", "Ingot ms", "ONNX Runtime ms", "OpenVINO ms", "torch ms",
        "best peer / Ingot", "compile s", "cached s", "peak MB", "differs by")  # fmt: skip
SHORT = ("model", "threads", "Ingot ms", "best peer ms", "best peer / Ingot")
PAGES = {"docs/performance.md": "full", "README.md": "short"}

Row = dict[str, Any]


def bench(name: str, folder: Path, threads: str, rounds: int) -> dict[str, Any]:
    """What `ingot bench --json` says about a model; an error is part of it."""
    case = models.make(name, folder)
    words = ["bench", str(case.file), "--json", "--threads", threads, "--rounds", str(rounds)]
    done = subprocess.run(
        [sys.executable, "-m", "ingot.cli", *words, *case.options],
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    said = json.loads(done.stdout or "{}")
    return {**said, "name": name, "exit_code": done.returncode}


def rows(result: dict[str, Any]) -> list[Row]:
    """One for each number of threads."""
    by_threads: dict[int, Row] = {}
    for entry in result.get("entries", ()):
        row = by_threads.setdefault(
            entry["threads"], {"model": result["name"], "threads": entry["threads"]}
        )
        row[entry["runtime"]] = entry
    if not by_threads:
        error = result.get("error", {}).get("code", f"exit code {result['exit_code']}")
        return [{"model": f"{result['name']} ({error})", "threads": "-"}]
    return list(by_threads.values())


def full_cells(row: Row) -> tuple[str, ...]:
    ours = row.get(OURS, {})
    times = [_time(row.get(name, {})) for name in (OURS, *PEERS)]
    return (
        row["model"],
        str(row["threads"]),
        *times,
        figure(ours.get(SPEEDUP), ".2f"),
        figure(ours.get("load_s"), ".1f"),
        figure(ours.get("cached_s"), ".2f"),
        figure((ours.get("peak_bytes") or 0) / 1e6 or None, ".0f"),
        _agreement(ours),
    )


def short_cells(row: Row) -> tuple[str, ...]:
    ours = row.get(OURS, {})
    peers = [e for name in PEERS if (e := row.get(name, {})).get("time_ms")]
    best = min(peers, key=lambda entry: entry["time_ms"], default={})
    told = f"{_time(best)} ({best['runtime']})" if best else "-"
    return row["model"], str(row["threads"]), _time(ours), told, figure(ours.get(SPEEDUP), ".2f")


def _time(entry: Row) -> str:
    if entry.get("refused"):
        return "refused"
    time_ms = entry.get("time_ms")
    return figure(time_ms, ".1f" if time_ms and time_ms >= 10 else ".3f")


def _agreement(entry: Row) -> str:
    if entry.get("agrees") is None:
        return "-"
    return ("" if entry["agrees"] else "DISAGREES ") + figure(entry.get("distance"), ".0e")


def figure(value: float | None, spec: str) -> str:
    return "-" if value is None else format(value, spec)


def mean_line(found: Iterable[Row]) -> str:
    """The geometric mean of the best peer's time over Ingot's, for each number of threads."""
    by_threads: dict[int, list[float]] = {}
    for row in found:
        ratio = row.get(OURS, {}).get(SPEEDUP)
        if ratio:
            by_threads.setdefault(row["threads"], []).append(math.log(ratio))
    told = [
        f"{math.exp(sum(logs) / len(logs)):.2f} with {threads} thread{'s' * (threads > 1)}"
        for threads, logs in sorted(by_threads.items())
    ]
    return "Geometric mean of the best peer's time over Ingot's: " + (", ".join(told) or "-") + "."


def markdown(head: tuple[str, ...], cells: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def machine() -> str:
    """What the figures were measured on, in a line."""
    words = [sys.executable, "-m", "ingot.cli", "doctor", "--json"]
    said = json.loads(subprocess.run(words, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout)
    found = {f["name"]: f["value"] for f in said["findings"]}
    python = platform.python_version()
    return (
        f"{found['model']}, {found['allowed']} cores, {found['vectors']}; Python {python}, "
        f"{found['LLVM']}"
    )


def tables(results: dict[str, Any]) -> dict[str, str]:
    found = [row for result in results["models"] for row in rows(result)]
    versions = {
        entry["runtime"]: entry["version"]
        for result in results["models"]
        for entry in result.get("entries", ())
        if entry["version"]
    }
    about = f"{results['machine']}; " + ", ".join(f"{n} {v}" for n, v in versions.items()) + "."
    last = f"{mean_line(found)}\n\n{about}"
    return {
        "full": markdown(HEAD, map(full_cells, found)) + f"\n\n{last}",
        "short": markdown(SHORT, map(short_cells, found)) + f"\n\n{mean_line(found)}",
    }


def fill(text: str, name: str, table: str) -> str:
    """The page with its table between the marks replaced."""
    begin, end = f"<!-- bench: {name} -->", "<!-- bench: end -->"
    head, _, rest = text.partition(begin)
    _, found, tail = rest.partition(end)
    if not found:
        raise SystemExit(f"no {begin} … {end} on the page")
    return f"{head}{begin}\n{table}\n{end}{tail}"


def fill_pages(results: dict[str, Any]) -> None:
    made = tables(results)
    for page, name in PAGES.items():
        path = ROOT / page
        path.write_text(fill(path.read_text(encoding="utf-8"), name, made[name]), encoding="utf-8")
        print(f"{page} filled")


@dataclass
class Choice:
    names: list[str]
    threads: str
    rounds: int
    out: Path
    fill: bool


def read_arguments(words: list[str] | None = None) -> Choice:
    parser = argparse.ArgumentParser(description="Ingot beside its peers, on a list of models.")
    parser.add_argument("names", nargs="*", metavar="MODEL", help=f"of {', '.join(models.NAMES)}")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench")
    parser.add_argument("--fill", action="store_true", help="put the last results into the docs")
    choice = Choice(**vars(parser.parse_args(words)))
    unknown = [name for name in choice.names if name not in models.NAMES]
    if unknown:
        parser.error(f"no model is called {', '.join(unknown)}")
    return choice


def main(words: list[str] | None = None, say: Callable[[str], None] = print) -> None:
    choice = read_arguments(words)
    choice.out.mkdir(parents=True, exist_ok=True)
    file = choice.out / "results.json"
    if choice.fill:
        fill_pages(json.loads(file.read_text(encoding="utf-8")))
        return
    results: dict[str, Any] = {"machine": machine(), "models": []}
    for name in choice.names or models.NAMES:
        result = bench(name, choice.out / "models", choice.threads, choice.rounds)
        results["models"].append(result)
        say("\n".join(columns([HEAD, *map(full_cells, rows(result))])))
        file.write_text(json.dumps(results, indent=1), encoding="utf-8")  # kept if the next fails
    table = tables(results)["full"]
    (choice.out / "table.md").write_text(table + "\n", encoding="utf-8")
    say(f"\n{mean_line(row for r in results['models'] for row in rows(r))}")
    say(f"table.md and results.json are in {choice.out}")


if __name__ == "__main__":
    main()

"""Benchmark Ingot versus its peers on a list of models: `make bench`. Out: a table, JSON, PNG.

    python benchmarks/peers.py                        the default models, 1 and 2 threads, 11 rounds
    python benchmarks/peers.py digits resnet50-8      these models; -8: at batch 8
    python benchmarks/peers.py --batch 1,8 unet       a model at several batch sizes
    python benchmarks/peers.py --peers onnxruntime    without peers that take long to load
    python benchmarks/peers.py --add --threads 1      keep other models and threads of the last run
    python benchmarks/peers.py --fill                 put the last table into the docs

Each model is timed by `ingot bench`. Results are in build/bench: results.json (everything),
table.md (the table of the docs), plot.png.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import models  # noqa: E402  # this file is run by its path
from benchmarks.plot import plot  # noqa: E402
from benchmarks.tables import (  # noqa: E402
    HEAD,
    PEERS,
    fill_pages,
    full_cells,
    mean_line,
    rows,
    tables,
)
from ingot.support.text import columns  # noqa: E402


@dataclass
class Choice:
    names: list[str]
    batch: str | None
    threads: str
    rounds: int
    peers: str
    out: Path
    add: bool
    fill: bool

    def cases(self) -> list[str]:
        """All names, each at the requested batch sizes."""
        is_default = not self.names and self.batch is None
        names = self.names or list(models.DEFAULT)
        if is_default:
            return [*names, *models.DEFAULT_BATCHES]
        return models.at_batches(names, [int(b) for b in (self.batch or "1").split(",")])


def bench(name: str, choice: Choice) -> dict[str, Any]:
    """The result of `ingot bench --json` for a model, or its error."""
    folder = choice.out / "models"
    case = models.make(name, folder)
    facts = _run_json("benchmarks.facts", name, str(folder))
    exact = ("--exact", facts["exact"]) if facts.get("exact") else ()
    words = ("bench", str(case.file), "--json", "--threads", choice.threads)
    words += ("--rounds", str(choice.rounds), "--peers", choice.peers)
    result = _run_json("ingot.cli", *words, *case.options, *exact, "--roofline")
    return {**result, "name": name, "facts": facts}


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The new result of a model, and the old one's results for other thread counts."""
    threads = {entry["threads"] for entry in new.get("entries", ())}
    kept = {
        key: [x for x in old.get(key, ()) if x["threads"] not in threads] + new.get(key, [])
        for key in ("entries", "roofline")
        if key in new
    }
    return {**new, **{key: sorted(rows, key=_threads) for key, rows in kept.items()}}


def _threads(row: dict[str, Any]) -> int:
    return row["threads"]


def _run_json(module: str, *words: str) -> dict[str, Any]:
    """The JSON that a command prints, and its exit code."""
    done = subprocess.run(
        [sys.executable, "-m", module, *words], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    return {**json.loads(done.stdout or "{}"), "exit_code": done.returncode}


def machine() -> str:
    """The machine of the measurements, in one line."""
    found = {f["name"]: f["value"] for f in _run_json("ingot.cli", "doctor", "--json")["findings"]}
    python = platform.python_version()
    return (
        f"{found['model']}, {found['allowed']} cores, {found['vectors']}; Python {python}, "
        f"{found['LLVM']}"
    )


def read_arguments(words: list[str] | None = None) -> Choice:
    parser = argparse.ArgumentParser(description="Benchmark Ingot versus its peers.")
    parser.add_argument("names", nargs="*", metavar="MODEL", help=f"{', '.join(models.NAMES)}")
    parser.add_argument("--batch", metavar="N,N", help="batch sizes: 1,8")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--peers", default=",".join(PEERS), help="runtimes to compare with")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench")
    parser.add_argument("--add", action="store_true", help="add to the results of the last run")
    parser.add_argument("--fill", action="store_true", help="put the last results into the docs")
    choice = Choice(**vars(parser.parse_args(words)))
    unknown = [name for name in choice.names if not models.is_known(name)]
    if unknown:
        parser.error(f"no model is called {', '.join(unknown)}")
    if (choice.add or choice.fill) and not (choice.out / "results.json").is_file():
        parser.error(f"no results are in {choice.out}: run it without --add and --fill first")
    return choice


def main(words: list[str] | None = None, say: Callable[[str], None] = print) -> None:
    choice = read_arguments(words)
    choice.out.mkdir(parents=True, exist_ok=True)
    file = choice.out / "results.json"
    if choice.fill:
        fill_pages(json.loads(file.read_text(encoding="utf-8")))
        return
    before = json.loads(file.read_text(encoding="utf-8")) if choice.add else {"models": []}
    found_before = {result["name"]: result for result in before["models"]}
    results: dict[str, Any] = {"machine": machine(), "models": []}
    for name in choice.cases():
        result = bench(name, choice)
        found_before[name] = merged(found_before.get(name, {}), result)
        results["models"] = list(found_before.values())
        say("\n".join(columns([HEAD, *map(full_cells, rows(result))])))
        file.write_text(json.dumps(results, indent=1), encoding="utf-8")  # kept if the next fails
    (choice.out / "table.md").write_text(tables(results)["full"] + "\n", encoding="utf-8")
    found = [row for result in results["models"] for row in rows(result)]
    plot(found, choice.out / "plot.png")
    say(f"\n{mean_line(found)}")
    say(f"table.md, plot.png and results.json are in {choice.out}")


if __name__ == "__main__":
    main()

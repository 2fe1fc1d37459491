"""The command line of benchmarks/gemm.py, convs.py and patterns.py.

In: a function from a seed to cases, the implementations. Out: a table on stdout, and
build/bench/<name>.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.micro import table
from benchmarks.micro.models import Case
from benchmarks.micro.rounds import Implementation, benchmark
from ingot.cli.peers.rounds import BenchOptions

ROOT = Path(__file__).parents[2]
Maker = Callable[[np.random.Generator], list[Case]]


def main(
    name: str,
    make: Maker,
    impls: Sequence[Implementation],
    words: list[str] | None = None,
) -> None:
    parser = argparse.ArgumentParser(description=f"Ingot versus libraries: {name}.")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--few", type=int, metavar="N", help="only N cases, evenly spread")
    parser.add_argument("--only", default="", metavar="WORD", help="cases with it in kind or name")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--round-s", type=float, default=0.1)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench")
    choice = parser.parse_args(words)
    made = make(np.random.default_rng(choice.seed))
    cases = spread([c for c in made if choice.only in f"{c.kind} {c.name}"], choice.few)
    if not cases:
        parser.error(f"no case of {name} has {choice.only!r} in its kind or name")
    print(f"{name}: {len(cases)} cases, seed {choice.seed}, {choice.rounds} rounds")
    options = BenchOptions(choice.rounds, choice.round_s)
    threads = [int(count) for count in choice.threads.split(",")]
    results = []
    print(table.line(table.head(impls)))
    for result in benchmark(cases, impls, threads, options, _step):
        print(table.line(table.cells(result, impls)), flush=True)
        results.append(result)
    print()
    found = list(table.summaries(results, impls))
    print("\n".join(table.summary_lines(found)))
    choice.out.mkdir(parents=True, exist_ok=True)
    file = choice.out / f"{name}.json"
    data = {"seed": choice.seed, "summaries": found,
            "results": table.as_data(results, impls)}  # fmt: skip
    file.write_text(json.dumps(data, indent=1), encoding="utf-8")
    print(f"all rounds are in {file}")


def _step(what: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{what:60}", end="", file=sys.stderr, flush=True)


def spread(cases: list[Case], few: int | None) -> list[Case]:
    """All cases, or `few` of them, evenly spread over the list."""
    if few is None or few >= len(cases):
        return cases
    return [cases[i * len(cases) // few] for i in range(few)]

"""What benchmarks/products.py, convs.py and patterns.py share: options, running, telling, JSON.

In: a maker of cases from a seed, contestants. Out: a table on stdout, build/bench/<name>.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.micro import table
from benchmarks.micro.contest import Contestant, hold
from benchmarks.micro.models import Case
from ingot.cli.peers.contest import Rules

ROOT = Path(__file__).parents[2]
Maker = Callable[[np.random.Generator], list[Case]]


def main(
    name: str, make: Maker, contestants: Sequence[Contestant], words: list[str] | None = None
) -> None:
    parser = argparse.ArgumentParser(description=f"Ingot beside libraries: {name}.")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--few", type=int, metavar="N", help="only N cases, from all over the list")
    parser.add_argument("--only", default="", metavar="WORD", help="cases with it in kind or name")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--round-s", type=float, default=0.1)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench")
    choice = parser.parse_args(words)
    drawn = make(np.random.default_rng(choice.seed))
    cases = spread([c for c in drawn if choice.only in f"{c.kind} {c.name}"], choice.few)
    if not cases:
        parser.error(f"no case of {name} has {choice.only!r} in its kind or name")
    print(f"{name}: {len(cases)} cases, seed {choice.seed}, {choice.rounds} rounds")
    rules = Rules(choice.rounds, choice.round_s)
    threads = [int(count) for count in choice.threads.split(",")]
    results = []
    print(table.line(table.head(contestants)))
    for result in hold(cases, contestants, threads, rules, _step):
        print(table.line(table.cells(result, contestants)), flush=True)
        results.append(result)
    print()
    found = list(table.summaries(results, contestants))
    print("\n".join(table.told(found)))
    choice.out.mkdir(parents=True, exist_ok=True)
    file = choice.out / f"{name}.json"
    data = {"seed": choice.seed, "summaries": found,
            "results": table.described(results, contestants)}  # fmt: skip
    file.write_text(json.dumps(data, indent=1), encoding="utf-8")
    print(f"all rounds are in {file}")


def _step(what: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{what:60}", end="", file=sys.stderr, flush=True)


def spread(cases: list[Case], few: int | None) -> list[Case]:
    """All of them, or `few` from all over the list."""
    if few is None or few >= len(cases):
        return cases
    return [cases[i * len(cases) // few] for i in range(few)]

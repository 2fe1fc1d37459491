"""Dynamic sizes versus fixed ones, one build each:  python benchmarks/dynamic.py [NAME…]

    python benchmarks/dynamic.py                     BERT, MobileNet-v2, ResNet-50, an LSTM
    python benchmarks/dynamic.py bert_base --rounds 9 --threads 1
    python benchmarks/dynamic.py --torch             one dynamic torch.export versus fixed ones
    python benchmarks/dynamic.py --trained           trained models with dynamic sizes
    python benchmarks/dynamic.py --trained ocr       those whose name contains a word

For each tuple of sizes the model is compiled with these sizes fixed; the dynamic build is one for
all. Both run in turns in one process, and the fixed build once more against itself, for the noise.
Columns: medians over rounds of the best call of a round, in ms; the ratio dynamic / fixed and that
of the fixed build to itself; what the first call at these sizes costs more than a later one, in ms;
the arena of the dynamic build over that of the fixed one. build/bench/dynamic.json has all rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import ingot  # noqa: E402  # this file is run by its path
from benchmarks.trained import files, inputs  # noqa: E402
from benchmarks.zoo import TABLE, path_of  # noqa: E402
from benchmarks.zoo.exported import NETWORKS, program  # noqa: E402
from ingot.runtime.sizes import solve  # noqa: E402
from ingot.support.errors import IngotError  # noqa: E402
from ingot.support.text import columns  # noqa: E402

OUT = ROOT / "build" / "bench" / "dynamic.json"
LENGTHS = (7, 32, 100, 128)
MODELS: dict[str, tuple[dict[str, int], ...]] = {
    "mobilenet_v2": ({"batch": 1}, {"batch": 8}),
    "resnet50": ({"batch": 1}, {"batch": 8}),
    "lstm_tagger": tuple({"batch": b, "length": n} for b in (1, 8) for n in LENGTHS),
    "bert_base": tuple({"batch": b, "length": n} for b in (1, 8) for n in LENGTHS),
}
UNROLLED = ("lstm_tagger",)  # torch.export makes the length of a recurrent layer a constant
HEAD = ("model", "sizes", "dynamic ms", "fixed ms", "dynamic / fixed", "fixed / fixed",
        "first call ms more", "arena")  # fmt: skip
ROUND_S = 0.3  # of one executable in a round


def best_ms(exe: Any, feeds: Mapping[str, np.ndarray]) -> float:
    """The fastest call of a round; at least three calls."""
    found, start = [], time.perf_counter()
    while len(found) < 3 or time.perf_counter() - start < ROUND_S:
        before = time.perf_counter()
        exe.run(None, feeds)
        found.append(1e3 * (time.perf_counter() - before))
    return min(found)


def arena_bytes(exe: Any, sizes: Mapping[str, int]) -> int | None:
    """None where it depends on data."""
    if any(s.source == "node" for s in exe.package.symbols):
        return None
    return exe.memory_for(**sizes).get("arena main", 0)


def sizes_of(exe: Any, feeds: Mapping[str, np.ndarray]) -> dict[str, int]:
    """What the executable's dynamic sizes are for these inputs."""
    symbols = exe.package.symbols
    values = solve(exe.package, [feeds[p.name].shape for p in exe.package.inputs]).symbols
    return {s.name: v for s, v in zip(symbols, values) if s.source == "input"}


def compare_zoo(
    name: str, dynamic: Any, sizes: dict[str, int], rounds: int, threads: int
) -> dict[str, Any]:
    entry = TABLE[name]
    fixed = ingot.compile(path_of(entry), threads=threads, shapes=entry.shapes(sizes))
    return compare(name, dynamic, fixed, entry.feeds(sizes), sizes, rounds)


def compare_module(
    name: str, dynamic: Any, sizes: dict[str, int], rounds: int, threads: int
) -> dict[str, Any]:
    network = NETWORKS[name]
    fixed = ingot.compile(program(network, sizes), threads=threads)
    feeds = dict(zip([port.name for port in fixed.inputs], network.feeds(sizes).values()))
    return compare(name, dynamic, fixed, feeds, sizes, rounds)


def compare_trained(model: Any, rounds: int, threads: int) -> dict[str, Any] | None:
    """None if Ingot does not compile the model, or it has no dynamic size."""
    try:
        dynamic = ingot.compile(model.path(), threads=threads)
    except IngotError as error:
        print(f"{model.name}: {error.what}", flush=True)
        return None
    feeds = inputs.feeds_of(model)
    sizes = sizes_of(dynamic, feeds)
    if not sizes:
        return None
    fixed = ingot.compile(model.path(), threads=threads, shapes=sizes)
    return compare(model.name, dynamic, fixed, feeds, sizes, rounds)


def compare(
    name: str, dynamic: Any, fixed: Any, feeds: Mapping[str, np.ndarray], sizes: dict[str, int],
    rounds: int,
) -> dict[str, Any]:  # fmt: skip
    start = time.perf_counter()
    dynamic.run(None, feeds)
    first = 1e3 * (time.perf_counter() - start)
    for exe in (dynamic, fixed):
        best_ms(exe, feeds)
    times = [[best_ms(exe, feeds) for exe in (dynamic, fixed, fixed)] for _ in range(rounds)]
    arenas = [arena_bytes(exe, sizes_of(exe, feeds)) for exe in (dynamic, fixed)]
    return {"name": name, "sizes": sizes, "rounds_ms": times, "first_ms": first, "arenas": arenas}


def cells(result: dict[str, Any]) -> tuple[str, ...]:
    dynamic, fixed, _ = (statistics.median(t) for t in zip(*result["rounds_ms"]))
    ratio = statistics.median(d / f for d, f, _ in result["rounds_ms"])
    noise = statistics.median(a / f for _, f, a in result["rounds_ms"])
    sizes = " ".join(f"{n}={v}" for n, v in result["sizes"].items())
    known = None not in result["arenas"] and result["arenas"][1]
    arena = f"{result['arenas'][0] / result['arenas'][1]:.2f}" if known else "-"
    more = result["first_ms"] - dynamic
    numbers = (f"{dynamic:.3f}", f"{fixed:.3f}", f"{ratio:.2f}", f"{noise:.2f}", f"{more:.2f}")
    return (result["name"], sizes, *numbers, arena)


def zoo_results(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for name in given.names or MODELS:
        dynamic = ingot.compile(path_of(TABLE[name]), threads=given.threads)
        for sizes in MODELS[name]:
            yield compare_zoo(name, dynamic, sizes, given.rounds, given.threads)


def torch_results(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for name in given.names or [name for name in MODELS if name not in UNROLLED]:
        dynamic = ingot.compile(program(NETWORKS[name]), threads=given.threads)
        for sizes in MODELS[name]:
            yield compare_module(name, dynamic, sizes, given.rounds, given.threads)


def chosen(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    if given.trained:
        return trained_results(given)
    return torch_results(given) if given.torch else zoo_results(given)


def trained_results(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for model in files.models():
        if not given.names or any(word in model.name for word in given.names):
            found = compare_trained(model, given.rounds, given.threads)
            if found is not None:
                yield found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python benchmarks/dynamic.py")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODELS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--torch", action="store_true", help="from torch.export, not ONNX")
    parser.add_argument("--trained", action="store_true", help="trained models; NAME: words")
    given = parser.parse_args()
    results = []
    for result in chosen(given):
        results.append(result)
        print("  ".join(cells(result)), flush=True)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(results, indent=1), encoding="utf-8")
    print("\n".join(columns([HEAD, *map(cells, results)])))


if __name__ == "__main__":
    main()

"""Benchmark Ingot versus its peers on a list of models: `make bench`. Out: tables, JSON, PNG.

    python benchmarks/peers.py                        the default models; torch on six of them
    python benchmarks/peers.py --torch all            torch on every model that came from torch
    python benchmarks/peers.py --from-torch           modules instead of ONNX, versus torch only
    python benchmarks/peers.py digits resnet50-8      these models; -8: at batch 8
    python benchmarks/peers.py lstm_tagger-dynamic    its sizes left dynamic, in every runtime
    python benchmarks/peers.py --batch 1,8 unet       a model at several batch sizes
    python benchmarks/peers.py --fill                 put benchmarks/results into the docs

Each model is timed by `ingot bench`, on 1, 2, 4 … threads up to the number of cores. Results are in
build/bench: results.json, table.md, plot.png. A run of the default models also writes its results
to benchmarks/results, in a file named after the machine and its instruction set.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import models, tables  # noqa: E402  # this file is run by its path
from benchmarks import result_files as files  # noqa: E402
from benchmarks.plot import plot  # noqa: E402
from benchmarks.rows import failures, mean_line, noise_line, row  # noqa: E402
from ingot.cli.peers.runtimes import PEERS  # noqa: E402
from ingot.runtime.cpu.pool import usable_cores  # noqa: E402
from ingot.support.text import columns  # noqa: E402


@dataclass
class Choice:
    names: list[str]
    batch: str | None
    threads: str
    rounds: int
    round_s: float
    peers: str
    torch: str
    from_torch: bool
    out: Path
    results: Path
    fill: bool

    @property
    def is_default(self) -> bool:
        return not self.names and self.batch is None

    @property
    def suffix(self) -> str:
        return files.FROM_TORCH if self.from_torch else ""

    def cases(self) -> list[str]:
        """All names, each at the requested batch sizes."""
        if self.is_default:
            return list(models.FROM_TORCH if self.from_torch else models.DEFAULT)
        names = self.names or list(models.SINGLE)
        if self.batch is None:
            return names
        return models.at_batches(names, [int(b) for b in self.batch.split(",")])

    def peers_of(self, case: models.Case) -> list[str]:
        named = self.peers.split(",") if self.peers else []
        has_torch = case.entry is not None and (
            self.torch == "all" or (self.torch == "some" and case.name in models.WITH_TORCH)
        )
        return [name for name in named if name != "torch" or has_torch]


def thread_counts(cores: int) -> list[int]:
    """1, 2, 4 … and all cores: each runtime counts at its best."""
    powers = [1 << i for i in range(cores.bit_length()) if 1 << i < cores]
    return [*powers, cores]


def bench(name: str, choice: Choice) -> dict[str, Any]:
    """The result of `ingot bench --json` for a model, or its error."""
    folder = choice.out / "models"
    case = models.make(name, folder)
    facts = files.run_json("benchmarks.facts", name, str(folder))
    exact = ("--exact", facts["exact"]) if facts.get("exact") else ()
    inputs = _of_module(case, folder) if choice.from_torch else _of_onnx(case, choice)
    words = ("--json", "--threads", choice.threads, "--roofline", *exact)
    words += ("--rounds", str(choice.rounds), "--round-s", str(choice.round_s))
    result = files.run_json("ingot.cli", "bench", *inputs, *words)
    work = {key: facts.get(key) for key in ("useful_flops", "weights_bytes")}
    return files.cleaned({"name": name, "facts": work, **result})


def _of_onnx(case: models.Case, choice: Choice) -> tuple[str, ...]:
    peers, also = choice.peers_of(case), ["again", "without-winograd"]
    torch = case.torch_file() if "torch" in peers else None
    also += ["module"] if torch else []
    given = ("--torch", str(torch)) if torch else ()
    chosen = ("--peers", ",".join(peers), "--also", ",".join(also))
    return str(case.file), *case.options, *given, *chosen


def _of_module(case: models.Case, folder: Path) -> tuple[str, ...]:
    """The same inputs, by the names that the module has for them."""
    import numpy as np
    import torch

    file = case.torch_file()
    if file is None:
        raise SystemExit(f"{case.name} has no torch.export file")
    names = torch.export.load(file).graph_signature.user_inputs
    with np.load(case.feeds) as feeds:
        arrays = {str(name): feeds[key] for name, key in zip(names, feeds.files)}
    inputs = folder / f"{case.name}-module.npz"
    np.savez(inputs, **arrays)  # type: ignore[arg-type]
    return str(file), "--feeds", str(inputs), "--peers", "torch", "--also", "again,backend"


def overhead_us() -> dict[str, float]:
    """call_overhead.py: microseconds of a call."""
    found = files.run_json("benchmarks.call_overhead", "--json")
    return {name: us for name, us in found.items() if name != "exit_code"}


def read_arguments(words: list[str] | None = None) -> Choice:
    parser = argparse.ArgumentParser(description="Benchmark Ingot versus its peers.")
    parser.add_argument("names", nargs="*", metavar="MODEL", help=f"{', '.join(models.NAMES)}")
    parser.add_argument("--batch", metavar="N,N", help="batch sizes: 1,8")
    parser.add_argument("--threads", help="default: 1,2,4 … up to the cores; modules: all cores")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--round-s", type=float, default=0.3)
    parser.add_argument("--peers", default=",".join(PEERS), help="runtimes to compare with")
    parser.add_argument(
        "--torch", choices=("some", "all"), default="some", help="models that torch runs"
    )
    parser.add_argument("--from-torch", action="store_true", help="modules, versus torch")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench")
    parser.add_argument("--results", type=Path, default=files.FOLDER, help="of default runs")
    parser.add_argument("--fill", action="store_true", help="put the results into the docs")
    choice = Choice(**vars(parser.parse_args(words)))
    unknown = [name for name in choice.names if not models.is_known(name)]
    if unknown:
        parser.error(f"no model is called {', '.join(unknown)}")
    cores = usable_cores()
    counts = [cores] if choice.from_torch else thread_counts(cores)
    choice.threads = choice.threads or ",".join(map(str, counts))
    return choice


def main(words: list[str] | None = None, say: Callable[[str], None] = print) -> None:
    choice = read_arguments(words)
    if choice.fill:
        tables.fill_pages()
        return
    start = time.monotonic()
    command = " ".join(["python benchmarks/peers.py", *(sys.argv[1:] if words is None else words)])
    about = files.about(command, choice.rounds, choice.threads)
    results: dict[str, Any] = {"about": files.cleaned(about)}
    results["models"] = []
    file = choice.out / f"results{choice.suffix}.json"
    for name in choice.cases():
        results["models"].append(bench(name, choice))
        _say_model(results["models"][-1], choice, say)
        files.write(results, file)  # kept if the next model fails
    if choice.is_default and not choice.from_torch:
        results["overhead_us"] = overhead_us()
    results["about"]["minutes"] = round((time.monotonic() - start) / 60, 1)
    files.write(results, file)
    if choice.is_default:
        name = files.file_name(results["about"]) + choice.suffix
        files.write(results, choice.results / f"{name}.json")
        say(f"{choice.results / name}.json written; --fill puts it into the docs")
    _finish(results, choice, say)


def _say_model(result: dict[str, Any], choice: Choice, say: Callable[[str], None]) -> None:
    head, cells = _table(choice)
    made = row(result)
    say("\n".join([*columns([head, cells(made)]), *failures([made])]))


def _table(choice: Choice) -> tuple[tuple[str, ...], Callable[[Any], tuple[str, ...]]]:
    if choice.from_torch:
        return tables.TORCH_HEAD, tables.torch_cells
    return tables.HEAD, tables.full_cells


def _finish(results: dict[str, Any], choice: Choice, say: Callable[[str], None]) -> None:
    rows: Sequence[Any] = [row(result) for result in results["models"]]
    table = tables.torch_table(results) if choice.from_torch else tables.full(results)
    (choice.out / f"table{choice.suffix}.md").write_text(table + "\n", encoding="utf-8")
    plot(rows, choice.out / f"plot{choice.suffix}.png")
    say(f"\n{mean_line(rows)}\n{noise_line(rows)}")
    if choice.from_torch:
        say(tables.torch_line(rows))
    say(f"{results['about']['minutes']} minutes; table, plot and results are in {choice.out}")


if __name__ == "__main__":
    main()

"""`ingot bench model.onnx`: Ingot beside every runtime that is installed here, and who agrees.

In: a model and perhaps files. Out: a table for each number of threads; exit code 3 if Ingot's
answers are not those of the others. peers/contest.py does the timing.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from ingot.cli.compare import TOLERANCE
from ingot.cli.feeds import Wanted, choose_sizes, make_feeds
from ingot.cli.options import (
    DISAGREE,
    FAILED,
    Shapes,
    command,
    feed_options,
    shapes,
    some_file,
)
from ingot.cli.output import print_json, print_table, steps
from ingot.cli.peers import contest
from ingot.cli.peers.contest import OURS, YARDSTICKS, Entry, Rules
from ingot.cli.peers.task import WORK, Task, save_feeds
from ingot.cli.sizes import file_sizes, ports, read_graph, with_sizes
from ingot.runtime.pool import usable_cores
from ingot.support.errors import IngotError

PEERS = ("onnxruntime", "openvino", "torch")
UNITS = {"product": "GFLOP/s of a product of 1024 x 1024 x 1024", "reading": "GB/s of reading"}
HEAD = ("runtime", "threads", "ms", "best peer / it", "load s", "cached s", "peak MB", "agrees")


def counts(context: click.Context, option: click.Parameter, text: str | None) -> list[int]:
    """Numbers of threads: 1,2"""
    try:
        found = [int(word) for word in (text or str(usable_cores())).split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r} is no list such as 1,2", context, option) from None
    if min(found) < 1:
        raise click.BadParameter("a call has one thread or more", context, option)
    return found


def peer_names(context: click.Context, option: click.Parameter, text: str | None) -> list[str]:
    names = list(PEERS) if text is None else [name for name in text.split(",") if name]
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        what = f"no peer is called {', '.join(unknown)}; there are {', '.join(PEERS)}"
        raise click.BadParameter(what, context, option)
    return names


@command("bench", has_model=False)
@click.argument("model", type=some_file(exists=True))
@click.option(
    "--shape",
    "--size",
    "shapes",
    multiple=True,
    metavar="NAME=N|AxB",
    callback=shapes,
    help="An open size, or all sizes of an input. Those not given are 1.",
)
@feed_options
@click.option("--threads", metavar="N,N", callback=counts, help="Default: every core.")
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Turns that each runtime takes.",
)
@click.option(
    "--round-s",
    type=click.FloatRange(min=0),
    default=0.3,
    show_default=True,
    help="Seconds of one runtime in one round, about.",
)
@click.option(
    "--peers",
    metavar="NAME,NAME",
    callback=peer_names,
    help="Only these: onnxruntime, openvino, torch.",
)
@click.option(
    "--torch",
    "torch_file",
    type=some_file(exists=True),
    help="The model as a torch.export file, for torch.compile.",
)
@click.option(
    "--exact",
    type=some_file(exists=True),
    help="The answers in float64, an .npz by position: who is how far from them.",
)
@click.option(
    "--yardsticks",
    is_flag=True,
    help="Time what the machine can do too: a product of 1024 x 1024 x 1024, reading memory.",
)
@click.option(
    "--open",
    "is_open",
    is_flag=True,
    help="Leave open sizes open; else every runtime is told what they are.",
)
@click.option(
    "--tolerance",
    default=TOLERANCE,
    show_default=True,
    help="Largest max|a-b|/max|b| of answers that agree.",
)
def bench_command(
    model: Path, shapes: Shapes, inputs: dict[str, str], feeds: Path | None, ranges: dict,
    seed: int, threads: list[int], rounds: int, round_s: float, peers: list[str],
    torch_file: Path | None, exact: Path | None, yardsticks: bool, is_open: bool, tolerance: float,
    as_json: bool,
) -> None:  # fmt: skip
    """Time MODEL in Ingot and in every other runtime installed here, in turns, each in a process of
    its own, and say whether the answers agree."""
    rules = Rules(rounds, round_s, tolerance=tolerance, exact=str(exact or ""))
    names, absent = contestants(peers, torch_file)
    names += YARDSTICKS if yardsticks else ()
    with tempfile.TemporaryDirectory(prefix="ingot-bench-") as scratch:
        folder = Path(scratch)
        wanted = Wanted(inputs, feeds, ranges, seed)
        task = replace(make_task(model, shapes, wanted, folder), is_open=is_open,
                       torch=str(torch_file or ""))  # fmt: skip
        entries = race(task, names, threads, rules, folder)
    if as_json:
        print_json(described(task, entries, absent, rules))
    else:
        _tell(task, entries, absent, rules)
    ours = [entry for entry in entries if entry.runtime == OURS]
    if any(entry.refused for entry in ours):
        sys.exit(FAILED)
    if any(entry.agrees is False for entry in ours):
        sys.exit(DISAGREE)


def contestants(peers: Sequence[str], torch_file: Path | None) -> tuple[list[str], dict[str, str]]:
    """Who takes part, and why the others do not."""
    absent = {
        name: f"not installed: pip install {name}" for name in peers if find_spec(name) is None
    }
    if "torch" in peers and "torch" not in absent and torch_file is None:
        absent["torch"] = "it reads no ONNX: give the model as a torch.export file with --torch"
    return [OURS, *(name for name in peers if name not in absent)], absent


def make_task(model: Path, given: Shapes, wanted: Wanted, folder: Path) -> Task:
    """The model's inputs as arrays in a file, and the sizes that they have."""
    ranged = [name for name, size in given.items() if type(size) is tuple]
    if ranged:
        hint = f"--size {ranged[0]}={given[ranged[0]][0]}, with --open to leave it open in the code"
        raise IngotError("bad-option", "a contest is run at one size, not in a range", hint=hint)
    graph = read_graph(model, given)
    inputs = ports(graph)
    asked = with_sizes(inputs, given)
    open_sizes = [symbol for symbol in graph.symbols if symbol.source == "input"]
    feeds = make_feeds(inputs, open_sizes, asked, wanted)
    save_feeds(folder / "feeds.npz", feeds.values())
    return Task(
        model=str(model.absolute()),
        feeds=str(folder / "feeds.npz"),
        names=tuple(feeds),
        dtypes=tuple(port.dtype for port in inputs),
        shapes=tuple(array.shape for array in feeds.values()),
        sizes=choose_sizes(inputs, open_sizes, asked, feeds),
        file_sizes=file_sizes(model, {name: array.shape for name, array in feeds.items()}),
        is_open=False,
        threads=1,
    )


def race(
    task: Task, names: Sequence[str], threads: Sequence[int], rules: Rules, folder: Path
) -> list[Entry]:
    """A contest for each number of threads, after one compilation with an empty cache."""
    entries: list[Entry] = []
    total = 1 + len(threads) * contest.step_count(names, rules)
    with steps(total, Path(task.model).name) as step:
        step("ingot compiles")
        cold = contest.load_cold(replace(task, threads=threads[0]), rules, folder)
        for count in threads:
            own = replace(task, threads=count)
            entries += contest.hold(own, names, rules, cold, folder, step)
    return entries


# --- telling --------------------------------------------------------------------------------------


def speedup(entry: Entry, entries: Sequence[Entry]) -> float | None:
    """The best peer's time over its own, with as many threads: above 1 it is the quicker one."""
    best = contest.best_peer([e for e in entries if e.threads == entry.threads])
    if best is None or best.time_ms is None or entry.time_ms is None:
        return None
    return best.time_ms / entry.time_ms


def described(
    task: Task, entries: Sequence[Entry], absent: dict[str, str], rules: Rules
) -> dict[str, Any]:
    rows = [
        {
            **asdict(entry),
            "time_ms": entry.time_ms,
            "speedup_over_best_peer": speedup(entry, entries),
        }
        for entry in entries
        if not is_yardstick(entry)
    ]
    inputs = [
        {"name": n, "dtype": d, "shape": s} for n, d, s in zip(task.names, task.dtypes, task.shapes)
    ]
    return {"model": task.model, "inputs": inputs, "sizes": task.sizes, "open": task.is_open,
            "rules": asdict(rules), "entries": rows, "absent": absent,
            "yardsticks": [*map(yardstick, filter(is_yardstick, entries))]}  # fmt: skip


def is_yardstick(entry: Entry) -> bool:
    return entry.runtime in YARDSTICKS


def yardstick(entry: Entry) -> dict[str, Any]:
    """What the machine did in a second meanwhile: flops of the product, bytes of reading."""
    rate = 1e3 * WORK[entry.runtime] / entry.time_ms if entry.time_ms else None
    return {"name": entry.runtime, "threads": entry.threads, "refused": entry.refused,
            "rounds_ms": entry.rounds_ms, "per_second": rate}  # fmt: skip


def _tell(task: Task, entries: Sequence[Entry], absent: dict[str, str], rules: Rules) -> None:
    shown = [
        f"{name}: {dtype}[{', '.join(map(str, shape))}]"
        for name, dtype, shape in zip(task.names, task.dtypes, task.shapes)
    ]
    sizes = "sizes left open" if task.is_open else "sizes fixed"
    rounds = f"{rules.rounds} round{'s' * (rules.rounds > 1)}"
    click.echo(f"{Path(task.model).name} on {', '.join(shown)}, {sizes}; {rounds}\n")
    shown_entries = [e for e in entries if not e.refused and not is_yardstick(e)]
    print_table(HEAD, [_cells(entry, entries) for entry in shown_entries])
    click.echo()
    for entry in filter(is_yardstick, entries):
        told = yardstick(entry)
        if told["per_second"]:
            unit = UNITS[entry.runtime]
            click.echo(f"{told['per_second'] / 1e9:.1f} {unit}, threads: {entry.threads}")
    for entry in entries:
        if entry.refused:
            click.echo(f"{entry.runtime}, {entry.threads} threads: {entry.refused}")
    for name, why in absent.items():
        click.echo(f"{name} did not take part: {why}")
    click.echo(_verdict(entries))


def _verdict(entries: Sequence[Entry]) -> str:
    judged = [entry for entry in entries if entry.runtime == OURS and entry.agrees is not None]
    if not judged:
        return "Nobody to compare Ingot's answers with."
    worst = max(entry.distance or 0.0 for entry in judged)
    verb = "agree" if all(entry.agrees for entry in judged) else "DISAGREE"
    return f"Ingot's answers {verb}: max|a-b|/max|b| = {worst:.1e}"


def _cells(entry: Entry, entries: Sequence[Entry]) -> tuple[str, ...]:
    times = speedup(entry, entries)
    agrees = {None: "-", True: f"{entry.distance or 0:.0e}", False: f"NO {entry.distance or 0:.0e}"}
    return (
        f"{entry.runtime} {entry.version}",
        str(entry.threads),
        _short(entry.time_ms),
        "-" if times is None else f"{times:.2f}",
        _short(entry.load_s),
        _short(entry.cached_s),
        "-" if entry.peak_bytes is None else f"{entry.peak_bytes / 1e6:.0f}",
        agrees[entry.agrees],
    )


def _short(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.3f}" if figure < 10 else f"{figure:.1f}"

"""`ingot bench model.onnx`, or model.pt2: benchmark Ingot versus every other installed runtime.

In: a model, optionally input files. Out: a table for all thread counts; exit code 3 if Ingot's
outputs differ from the reference's. peers/rounds.py does the timing.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from ingot.cli.compare import TOLERANCE
from ingot.cli.feeds import FeedSpec, choose_sizes, make_feeds
from ingot.cli.options import (
    FAILED,
    OUTPUTS_DIFFER,
    Shapes,
    command,
    feed_options,
    shapes,
    some_file,
)
from ingot.cli.output import print_json, print_table, steps
from ingot.cli.peers.rounds import (
    OURS,
    ROOFLINE_PROBES,
    BenchOptions,
    Entry,
    benchmark,
    best_peer,
    load_cold,
    step_count,
)
from ingot.cli.peers.task import WORK_PER_CALL, Task, save_feeds
from ingot.cli.sizes import file_sizes, ports, read_graph, with_sizes
from ingot.runtime.cpu.pool import usable_cores
from ingot.support.errors import IngotError

PEERS = ("onnxruntime", "openvino", "torch")
UNITS = {"gemm": "GFLOP/s, f32 GEMM 1024 x 1024 x 1024", "bandwidth": "GB/s, memory read bandwidth"}
HEAD = ("runtime", "threads", "median ms", "speedup vs best peer", "load s", "load s (cached)",
        "peak RSS MB", "error vs reference")  # fmt: skip


def counts(context: click.Context, option: click.Parameter, text: str | None) -> list[int]:
    """Thread counts: 1,2"""
    try:
        found = [int(word) for word in (text or str(usable_cores())).split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list such as 1,2", context, option) from None
    if min(found) < 1:
        raise click.BadParameter("a thread count is at least 1", context, option)
    return found


def peer_names(context: click.Context, option: click.Parameter, text: str | None) -> list[str]:
    names = list(PEERS) if text is None else [name for name in text.split(",") if name]
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        what = f"unknown runtime {', '.join(unknown)}; choose from {', '.join(PEERS)}"
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
    help="A dynamic dimension, or the shape of an input. Default: 1 for every dynamic dimension.",
)
@feed_options
@click.option(
    "--threads", metavar="N,N", callback=counts, help="Thread counts; default: all cores."
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Timed rounds of each runtime.",
)
@click.option(
    "--round-s",
    type=click.FloatRange(min=0),
    default=0.3,
    show_default=True,
    help="Duration of one runtime in one round, in seconds.",
)
@click.option(
    "--peers",
    metavar="NAME,NAME",
    callback=peer_names,
    help="Compare with these only: onnxruntime, openvino, torch.",
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
    help="Outputs computed in float64, an .npz by position; reports each runtime's error.",
)
@click.option(
    "--roofline",
    is_flag=True,
    help="Also measure the machine: a 1024 x 1024 x 1024 GEMM and memory read bandwidth.",
)
@click.option(
    "--dynamic",
    "is_dynamic",
    is_flag=True,
    help="Keep dynamic dimensions dynamic. Default: specialise every runtime for the shapes.",
)
@click.option(
    "--tolerance",
    default=TOLERANCE,
    show_default=True,
    help="Largest max|a-b|/max|b| at which outputs match.",
)
def bench_command(
    model: Path, shapes: Shapes, inputs: dict[str, str], feeds: Path | None, ranges: dict,
    seed: int, threads: list[int], rounds: int, round_s: float, peers: list[str],
    torch_file: Path | None, exact: Path | None, roofline: bool, is_dynamic: bool,
    tolerance: float, as_json: bool,
) -> None:  # fmt: skip
    """Benchmark MODEL in Ingot and in every other installed runtime, each in its own process, in
    interleaved rounds, and compare the outputs."""
    options = BenchOptions(rounds, round_s, tolerance=tolerance, exact=str(exact or ""))
    if model.suffix == ".pt2":
        torch_file = torch_file or model
    names, skipped = select_runtimes(peers, torch_file, is_torch=model.suffix == ".pt2")
    names += ROOFLINE_PROBES if roofline else ()
    with tempfile.TemporaryDirectory(prefix="ingot-bench-") as scratch:
        folder = Path(scratch)
        spec = FeedSpec(inputs, feeds, ranges, seed)
        task = replace(make_task(model, shapes, spec, folder), is_dynamic=is_dynamic,
                       torch=str(torch_file.absolute() if torch_file else ""))  # fmt: skip
        entries = benchmark_all(task, names, threads, options, folder)
    if as_json:
        print_json(as_data(task, entries, skipped, options))
    else:
        _print(task, entries, skipped, options)
    ours = [entry for entry in entries if entry.runtime == OURS]
    if any(entry.failure for entry in ours):
        sys.exit(FAILED)
    if any(entry.agrees is False for entry in ours):
        sys.exit(OUTPUTS_DIFFER)


def select_runtimes(
    peers: Sequence[str], torch_file: Path | None, is_torch: bool = False
) -> tuple[list[str], dict[str, str]]:
    """The runtimes to benchmark, and why the others are skipped."""
    skipped = {
        name: f"not installed: pip install {name}" for name in peers if find_spec(name) is None
    }
    if "torch" in peers and "torch" not in skipped and torch_file is None:
        skipped["torch"] = "torch cannot read ONNX: give a torch.export file with --torch"
    for name in ("onnxruntime", "openvino") if is_torch else ():
        if name in peers:
            skipped[name] = "it cannot read a torch.export file"
    return [OURS, *(name for name in peers if name not in skipped)], skipped


def make_task(model: Path, given: Shapes, spec: FeedSpec, folder: Path) -> Task:
    """Writes the inputs to a file, and finds the sizes that they have."""
    ranged = [name for name, size in given.items() if type(size) is tuple]
    if ranged:
        hint = f"--size {ranged[0]}={given[ranged[0]][0]}, and --dynamic to keep it dynamic"
        raise IngotError("bad-option", "ingot bench needs one size, not a range", hint=hint)
    graph = read_graph(model, given)
    inputs = ports(graph)
    sizes = with_sizes(inputs, given)
    dynamic_dims = [symbol for symbol in graph.symbols if symbol.source == "input"]
    feeds = make_feeds(inputs, dynamic_dims, sizes, spec)
    save_feeds(folder / "feeds.npz", feeds.values())
    return Task(
        model=str(model.absolute()),
        feeds=str(folder / "feeds.npz"),
        names=tuple(feeds),
        dtypes=tuple(port.dtype for port in inputs),
        shapes=tuple(array.shape for array in feeds.values()),
        sizes=choose_sizes(inputs, dynamic_dims, sizes, feeds),
        file_sizes=file_sizes(model, {name: array.shape for name, array in feeds.items()}),
        is_dynamic=False,
        threads=1,
    )


def benchmark_all(
    task: Task, names: Sequence[str], threads: Sequence[int], options: BenchOptions, folder: Path
) -> list[Entry]:
    """A benchmark for each thread count, after one compilation with an empty cache."""
    entries: list[Entry] = []
    total = 1 + len(threads) * step_count(names, options)
    with steps(total, Path(task.model).name) as step:
        step("compiling with ingot")
        cold = load_cold(replace(task, threads=threads[0]), options, folder)
        for count in threads:
            own = replace(task, threads=count)
            entries += benchmark(own, names, options, cold, folder, step)
    return entries


# --- output ---------------------------------------------------------------------------------------


def speedup(entry: Entry, entries: Sequence[Entry]) -> float | None:
    """The best peer's time over its own, at the same thread count: above 1 it is faster."""
    best = best_peer([e for e in entries if e.threads == entry.threads])
    if best is None or best.time_ms is None or entry.time_ms is None:
        return None
    return best.time_ms / entry.time_ms


def as_data(
    task: Task, entries: Sequence[Entry], skipped: dict[str, str], options: BenchOptions
) -> dict[str, Any]:
    rows = [
        {
            **asdict(entry),
            "time_ms": entry.time_ms,
            "speedup_over_best_peer": speedup(entry, entries),
        }
        for entry in entries
        if not is_roofline_probe(entry)
    ]
    inputs = [
        {"name": n, "dtype": d, "shape": s} for n, d, s in zip(task.names, task.dtypes, task.shapes)
    ]
    return {"model": task.model, "inputs": inputs, "sizes": task.sizes, "dynamic": task.is_dynamic,
            "options": asdict(options), "entries": rows, "skipped": skipped,
            "roofline": [*map(machine_rate, filter(is_roofline_probe, entries))]}  # fmt: skip


def is_roofline_probe(entry: Entry) -> bool:
    return entry.runtime in ROOFLINE_PROBES


def machine_rate(entry: Entry) -> dict[str, Any]:
    """A roofline probe's rate: FLOP/s of the GEMM, bytes/s of the memory reads."""
    rate = 1e3 * WORK_PER_CALL[entry.runtime] / entry.time_ms if entry.time_ms else None
    return {"name": entry.runtime, "threads": entry.threads, "failure": entry.failure,
            "rounds_ms": entry.rounds_ms, "per_second": rate}  # fmt: skip


def _print(
    task: Task, entries: Sequence[Entry], skipped: dict[str, str], options: BenchOptions
) -> None:
    shown = [
        f"{name}: {dtype}[{', '.join(map(str, shape))}]"
        for name, dtype, shape in zip(task.names, task.dtypes, task.shapes)
    ]
    sizes = "dynamic shapes" if task.is_dynamic else "static shapes"
    rounds = f"{options.rounds} round{'s' * (options.rounds > 1)}"
    click.echo(f"{Path(task.model).name} on {', '.join(shown)}, {sizes}; {rounds}\n")
    timed = [e for e in entries if not e.failure and not is_roofline_probe(e)]
    print_table(HEAD, [_cells(entry, entries) for entry in timed])
    click.echo()
    for entry in filter(is_roofline_probe, entries):
        rate = machine_rate(entry)["per_second"]
        if rate:
            click.echo(f"{rate / 1e9:.1f} {UNITS[entry.runtime]}, threads: {entry.threads}")
    for entry in entries:
        if entry.failure:
            click.echo(f"{entry.runtime}, {entry.threads} threads: failed: {entry.failure}")
    for name, why in skipped.items():
        click.echo(f"{name}: skipped: {why}")
    click.echo(verdict(task, entries))


def verdict(task: Task, entries: Sequence[Entry]) -> str:
    compared = [entry for entry in entries if entry.runtime == OURS and entry.agrees is not None]
    if not compared:
        return "No other runtime to compare Ingot's outputs with."
    worst = max(entry.distance or 0.0 for entry in compared)
    agrees = all(entry.agrees for entry in compared)
    verb = "match" if agrees else "DIFFER"
    line = f"Ingot's outputs {verb}: max|a-b|/max|b| = {worst:.1e}"
    return line if agrees else f"{line}\nto find the node and the stage: {verify_line(task)}"


def verify_line(task: Task) -> str:
    """The command that looks into it, for the same sizes."""
    sizes = {} if task.is_dynamic else task.sizes
    words = ["ingot", "verify", task.model, *(f"--shape={n}={size}" for n, size in sizes.items())]
    return shlex.join(words)


def _cells(entry: Entry, entries: Sequence[Entry]) -> tuple[str, ...]:
    ratio = speedup(entry, entries)
    error = f"{entry.distance or 0:.0e}"
    agreement = {None: "-", True: error, False: f"DIFFERS {error}"}
    return (
        f"{entry.runtime} {entry.version}",
        str(entry.threads),
        _short(entry.time_ms),
        "-" if ratio is None else f"{ratio:.2f}",
        _short(entry.load_s),
        _short(entry.cached_s),
        "-" if entry.peak_bytes is None else f"{entry.peak_bytes / 1e6:.0f}",
        agreement[entry.agrees],
    )


def _short(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.3f}" if figure < 10 else f"{figure:.1f}"

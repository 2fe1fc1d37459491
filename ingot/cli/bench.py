"""`ingot bench model.onnx`, or model.pt2: benchmark Ingot versus every other installed runtime.

In: a model, optionally input files. Out: a table for all thread counts; exit code 3 if Ingot's
outputs differ from the reference's. peers/rounds.py does the timing.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import click

from ingot.cli.bench_output import as_data, print_entries
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
from ingot.cli.output import print_json, steps
from ingot.cli.peers.rounds import BenchOptions, Entry, benchmark, load_cold, step_count
from ingot.cli.peers.runtimes import ALSO, OURS, PEERS, ROOFLINE_PROBES, Model, choose
from ingot.cli.peers.task import Task, save_feeds
from ingot.cli.sizes import file_sizes
from ingot.runtime.cpu.pool import usable_cores
from ingot.shapes import ports, read_graph, with_sizes
from ingot.support.errors import IngotError


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
    return list(PEERS) if text is None else _names(context, option, text, PEERS)


def also_names(context: click.Context, option: click.Parameter, text: str) -> list[str]:
    return _names(context, option, text, ALSO)


def _names(
    context: click.Context, option: click.Parameter, text: str, known: Collection[str]
) -> list[str]:
    names = [name for name in text.split(",") if name]
    unknown = [name for name in names if name not in known]
    if unknown:
        what = f"unknown runtime {', '.join(unknown)}; choose from {', '.join(known)}"
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
    help="Compare with these only: onnxruntime, openvino, torch (eager, eager in channels-last "
    "memory, torch.compile, torch.compile with freezing).",
)
@click.option(
    "--also",
    metavar="NAME,NAME",
    default="",
    callback=also_names,
    help="Ingot in other ways too: again (the same build twice), module (from the torch.export "
    'file), backend (torch.compile with backend="ingot"), without-winograd.',
)
@click.option(
    "--torch",
    "torch_file",
    type=some_file(exists=True),
    help="The model as a torch.export file, for torch.",
)
@click.option(
    "--exact",
    type=some_file(exists=True),
    help="Outputs computed in float64, an .npz by position; reports each runtime's error.",
)
@click.option(
    "--roofline",
    is_flag=True,
    help="Also measure the machine: its peak multiply-add rate and memory read bandwidth.",
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
    also: list[str], torch_file: Path | None, exact: Path | None, roofline: bool, is_dynamic: bool,
    tolerance: float, as_json: bool,
) -> None:  # fmt: skip
    """Benchmark MODEL in Ingot and in every other installed runtime, each in its own process, in
    interleaved rounds, and compare the outputs."""
    options = BenchOptions(rounds, round_s, tolerance=tolerance, exact=str(exact or ""))
    if model.suffix == ".pt2":
        torch_file = torch_file or model
    with tempfile.TemporaryDirectory(prefix="ingot-bench-") as scratch:
        folder = Path(scratch)
        spec = FeedSpec(inputs, feeds, ranges, seed)
        task = replace(make_task(model, shapes, spec, folder), is_dynamic=is_dynamic,
                       torch=str(torch_file.absolute() if torch_file else ""))  # fmt: skip
        names, skipped = choose(peers, also, _model(task))
        names += ROOFLINE_PROBES if roofline else ()
        entries = benchmark_all(task, names, threads, options, folder)
    if as_json:
        print_json(as_data(task, entries, skipped, options))
    else:
        print_entries(task, entries, skipped, options)
    ours = [entry for entry in entries if entry.runtime == OURS]
    if any(entry.failure for entry in ours):
        sys.exit(FAILED)
    if any(entry.agrees is False for entry in ours):
        sys.exit(OUTPUTS_DIFFER)


def _model(task: Task) -> Model:
    return Model(
        is_torch=task.model == task.torch,
        has_torch_file=bool(task.torch),
        has_images=any(len(shape) == 4 for shape in task.shapes),
    )


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

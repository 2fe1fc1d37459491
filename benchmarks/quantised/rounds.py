"""The rounds of one quantised model: every runtime in a process of its own, one after another.

In: a `Case`, the columns to time, options. Out: an `Entry` each (ingot/cli/peers/rounds.py), with
the largest difference of its outputs from those of ONNX Runtime without optimisations.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.quantised.models import Case
from ingot import dtypes
from ingot.cli.compare import distance
from ingot.cli.peers.process import Peer, PeerError
from ingot.cli.peers.rounds import BenchOptions, Entry, Runner, time_rounds
from ingot.cli.peers.task import Task, read_outputs, save_feeds

CHILD = "benchmarks.quantised.runtimes"
REFERENCE = "reference"
# the widest instruction set of a target, as oneDNN (and so OpenVINO) is told it; measured to work
CAPS = {"x86-64-v2": "SSE41", "x86-64-v3": "AVX2", "x86-64-v4": "AVX512_CORE"}


@dataclass(frozen=True)
class Column:
    """`is_float`: it runs the network in f32."""

    label: str
    runtime: str
    is_float: bool = False

    @property
    def is_peer(self) -> bool:
        return not self.runtime.startswith("ingot")


def columns_for(target: str, peers: Sequence[str]) -> list[Column]:
    """Ingot twice, for the noise; peers; Ingot in f32. A peer without a limit is left out where
    Ingot has one."""
    ours = "ingot" if target == "cpu" else f"ingot@{target}"
    found = [Column("ingot", ours), Column("again", ours), Column("f32", ours, is_float=True)]
    for peer in peers:
        if target == "cpu":
            found.append(Column(peer, peer))
        elif peer == "openvino":
            found.append(Column(peer, f"{peer}@{CAPS[target]}"))
    return found


def benchmark(
    case: Case, columns: Sequence[Column], threads: int, options: BenchOptions
) -> list[Entry]:
    """An entry for each column, `runtime` being its label; without those that have no file."""
    with tempfile.TemporaryDirectory(prefix="ingot-quantised-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        tasks = {False: _task(case, case.int8, threads, folder)}
        if case.float32 is not None:
            tasks[True] = _task(case, case.float32, threads, folder)
        runners = [
            _load(column, tasks[column.is_float], folder, options, stack)
            for column in columns
            if column.is_float in tasks
        ]
        time_rounds(runners, options, lambda what: None)
        wanted = _reference(tasks[False], folder, options)
        entries = [replace(r.entry, rounds_ms=tuple(r.rounds_ms)) for r in runners]
        return [_compared(entry, wanted, folder) for entry in entries]


def _task(case: Case, model: Path, threads: int, folder: Path) -> Task:
    feeds, file = case.feeds(), folder / "feeds.npz"
    save_feeds(file, feeds.values())
    return Task(
        model=str(model),
        feeds=str(file),
        names=tuple(feeds),
        dtypes=tuple(dtypes.from_numpy(a.dtype).name for a in feeds.values()),
        shapes=tuple(a.shape for a in feeds.values()),
        sizes={} if model == case.int8 else dict(case.sizes),  # the quantised file's are fixed
        is_dynamic=case.model.method == "trained",
        threads=threads,
        file_sizes={} if model == case.int8 else dict(case.sizes),
    )


def _load(
    column: Column, task: Task, folder: Path, options: BenchOptions, stack: ExitStack
) -> Runner:
    """The runtime with the model loaded and its outputs saved, or its error message."""
    entry = Entry(column.label, task.threads)
    peer = stack.enter_context(
        Peer(column.runtime, folder / "cache", task.threads, options.limit_s, CHILD)
    )
    try:
        loaded = peer.load(task)
        peer.save_outputs(_outputs_file(folder, column.label))
    except PeerError as why:
        return Runner(peer, replace(entry, failure=str(why)))
    return Runner(peer, replace(entry, version=loaded["version"], load_s=loaded["load_s"]))


def _reference(task: Task, folder: Path, options: BenchOptions) -> list:
    with Peer(REFERENCE, folder / "cache", task.threads, options.limit_s, CHILD) as peer:
        peer.load(task)
        peer.save_outputs(_outputs_file(folder, REFERENCE))
    return read_outputs(_outputs_file(folder, REFERENCE))


def _compared(entry: Entry, wanted: list, folder: Path) -> Entry:
    if entry.failure:
        return entry
    found = read_outputs(_outputs_file(folder, entry.runtime))
    return replace(entry, distance=max(map(distance, found, wanted), default=0.0))


def _outputs_file(folder: Path, label: str) -> Path:
    return folder / f"{label}-outputs.npz"

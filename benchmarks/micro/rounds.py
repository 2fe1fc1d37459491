"""Benchmark many small models, each runtime in a process of its own that lives for all of them.

In: cases, implementations, options. Out: a `Result` for each case and thread count. The rounds are
those of `ingot bench` (ingot/cli/peers/rounds.py).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.micro.models import Case
from ingot.cli.compare import TOLERANCE, distance
from ingot.cli.peers.process import Peer, PeerError
from ingot.cli.peers.rounds import BenchOptions, Entry, Runner, time_rounds
from ingot.cli.peers.task import Task, read_outputs, save_feeds


@dataclass(frozen=True)
class Implementation:
    """A runtime and its column. `is_frozen`: it runs the model with `case.frozen` as constants."""

    label: str
    runtime: str
    is_frozen: bool = False
    is_ours: bool = False


@dataclass(frozen=True)
class Result:
    case: Case
    threads: int
    entries: tuple[Entry, ...]  # in the order of the implementations; `runtime` is the label

    @property
    def time_ms(self) -> dict[str, float]:
        return {e.runtime: e.time_ms for e in self.entries if e.time_ms is not None}


class Processes:
    """The runtimes' processes, each started on first use, and again after it has failed."""

    def __init__(self, threads: int, folder: Path, options: BenchOptions, stack: ExitStack):
        self.threads, self.folder, self.options, self._stack = threads, folder, options, stack
        self._peers: dict[str, Peer] = {}

    def load(self, impl: Implementation, case: Case) -> Runner:
        """The runtime with the case's model loaded and its outputs saved, or its error message."""
        entry = Entry(impl.label, self.threads)
        peer = self._peers.get(impl.label) or self._start(impl)
        try:
            loaded = peer.load(self._task(impl, case))
            peer.save_outputs(self.outputs_file(impl))
        except PeerError as why:
            del self._peers[impl.label]
            return Runner(peer, replace(entry, failure=str(why)))
        return Runner(peer, replace(entry, version=loaded["version"], load_s=loaded["load_s"]))

    def outputs_file(self, impl: Implementation) -> Path:
        return self.folder / f"{impl.label}-outputs.npz".replace(" ", "_")

    def _start(self, impl: Implementation) -> Peer:
        peer = Peer(impl.runtime, self.folder / "cache", self.threads, self.options.limit_s,
                    "benchmarks.micro.peers")  # fmt: skip
        self._peers[impl.label] = self._stack.enter_context(peer)
        return peer

    def _task(self, impl: Implementation, case: Case) -> Task:
        kind = "constant" if impl.is_frozen else "given"
        model, feeds = self.folder / f"{kind}.onnx", case.feeds(impl.is_frozen)
        model.write_bytes(case.model(impl.is_frozen))
        file = self.folder / f"{kind}.npz"
        save_feeds(file, feeds.values())
        shapes = tuple(a.shape for a in feeds.values())
        return Task(str(model), str(file), tuple(feeds), ("f32",) * len(feeds), shapes, {},
                    is_dynamic=False, threads=self.threads)  # fmt: skip


def benchmark(
    cases: Sequence[Case],
    impls: Sequence[Implementation],
    threads: Sequence[int],
    options: BenchOptions,
    step: Callable[[str], None],
) -> Iterator[Result]:
    for count in threads:
        with tempfile.TemporaryDirectory(prefix="ingot-micro-") as scratch, ExitStack() as stack:
            processes = Processes(count, Path(scratch), options, stack)
            for case in cases:
                step(f"{case.name}, threads: {count}")
                yield _one(case, impls, processes)


def _one(case: Case, impls: Sequence[Implementation], processes: Processes) -> Result:
    runners = [processes.load(impl, case) for impl in impls]
    time_rounds(runners, processes.options, lambda what: None)
    entries = [replace(r.entry, rounds_ms=tuple(r.rounds_ms)) for r in runners]
    return Result(case, processes.threads, tuple(_compared(entries, impls, processes)))


def _compared(
    entries: Sequence[Entry], impls: Sequence[Implementation], processes: Processes
) -> Iterator[Entry]:
    """The entries with their distance from the reference: the first peer that did not fail."""
    outputs = {
        impl.label: read_outputs(processes.outputs_file(impl))
        for impl, entry in zip(impls, entries)
        if not entry.failure
    }
    peers = [impl.label for impl in impls if not impl.is_ours and impl.label in outputs]
    for entry in entries:
        if not peers or entry.failure or entry.runtime == peers[0]:
            yield entry
            continue
        worst = max(map(distance, outputs[entry.runtime], outputs[peers[0]]))
        yield replace(entry, distance=worst, agrees=worst <= TOLERANCE)

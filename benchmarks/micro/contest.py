"""Many small models, one after another, every runtime in a process of its own that stays for all.

In: cases, who takes part, rules. Out: a `Result` for each case and number of threads. The turns are
those of `ingot bench` (ingot/cli/peers/contest.py).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.micro.models import Case
from ingot.cli.compare import TOLERANCE, distance
from ingot.cli.peers.contest import Entry, Rules, Runner, take_rounds
from ingot.cli.peers.process import Peer, Refused
from ingot.cli.peers.task import Task, read_answers, save_feeds


@dataclass(frozen=True)
class Contestant:
    """`label` is its column; `is_frozen`: it gets the model that holds `case.frozen`."""

    label: str
    runtime: str
    is_frozen: bool = False
    is_ours: bool = False


@dataclass(frozen=True)
class Result:
    case: Case
    threads: int
    entries: tuple[Entry, ...]  # in the order of the contestants, named by their labels

    @property
    def time_ms(self) -> dict[str, float]:
        return {e.runtime: e.time_ms for e in self.entries if e.time_ms is not None}


class Team:
    """The processes, each started when it is first needed and again after it has died."""

    def __init__(self, threads: int, folder: Path, rules: Rules, stack: ExitStack):
        self.threads, self.folder, self.rules, self._stack = threads, folder, rules, stack
        self._peers: dict[str, Peer] = {}

    def load(self, who: Contestant, case: Case) -> Runner:
        """The runtime with the case's model, its answers written down; or why it refuses."""
        entry = Entry(who.label, self.threads)
        peer = self._peers.get(who.label) or self._start(who)
        try:
            loaded = peer.load(self._task(who, case))
            peer.answer(self.answer_file(who))
        except Refused as why:
            del self._peers[who.label]
            return Runner(peer, replace(entry, refused=str(why)))
        return Runner(peer, replace(entry, version=loaded["version"], load_s=loaded["load_s"]))

    def answer_file(self, who: Contestant) -> Path:
        return self.folder / f"{who.label}-answers.npz".replace(" ", "_")

    def _start(self, who: Contestant) -> Peer:
        peer = Peer(who.runtime, self.folder / "cache", self.threads, self.rules.limit_s,
                    "benchmarks.micro.peers")  # fmt: skip
        self._peers[who.label] = self._stack.enter_context(peer)
        return peer

    def _task(self, who: Contestant, case: Case) -> Task:
        kind = "constant" if who.is_frozen else "given"
        model, feeds = self.folder / f"{kind}.onnx", case.feeds(who.is_frozen)
        model.write_bytes(case.model(who.is_frozen))
        file = self.folder / f"{kind}.npz"
        save_feeds(file, feeds.values())
        shapes = tuple(a.shape for a in feeds.values())
        return Task(str(model), str(file), tuple(feeds), ("f32",) * len(feeds), shapes, {},
                    is_open=False, threads=self.threads)  # fmt: skip


def hold(
    cases: Sequence[Case],
    contestants: Sequence[Contestant],
    threads: Sequence[int],
    rules: Rules,
    step: Callable[[str], None],
) -> Iterator[Result]:
    for count in threads:
        with tempfile.TemporaryDirectory(prefix="ingot-micro-") as scratch, ExitStack() as stack:
            team = Team(count, Path(scratch), rules, stack)
            for case in cases:
                step(f"{case.name}, threads: {count}")
                yield _one(case, contestants, team)


def _one(case: Case, contestants: Sequence[Contestant], team: Team) -> Result:
    runners = [team.load(who, case) for who in contestants]
    take_rounds(runners, team.rules, lambda what: None)
    entries = [replace(r.entry, rounds_ms=tuple(r.rounds_ms)) for r in runners]
    return Result(case, team.threads, tuple(_judged(entries, contestants, team)))


def _judged(
    entries: Sequence[Entry], contestants: Sequence[Contestant], team: Team
) -> Iterator[Entry]:
    """Distances from the first peer that answered."""
    answers = {
        who.label: read_answers(team.answer_file(who))
        for who, entry in zip(contestants, entries)
        if not entry.refused
    }
    peers = [who.label for who in contestants if not who.is_ours and who.label in answers]
    for entry in entries:
        if not peers or entry.refused or entry.runtime == peers[0]:
            yield entry
            continue
        far = max(map(distance, answers[entry.runtime], answers[peers[0]]))
        yield replace(entry, distance=far, agrees=far <= TOLERANCE)

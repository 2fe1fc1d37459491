"""A contest: Ingot and its peers on one model, in turns, and whether their answers agree.

In: a `Task` and the names of runtimes. Out: an `Entry` each. Every runtime has a process of its own
and the same number of threads. They take turns, round by round, so that whatever else the machine
does meets all of them; within a round a runtime runs again and again for `round_s`. A figure is the
median of the rounds' medians.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from ingot.cli.compare import TOLERANCE, distance
from ingot.cli.peers.process import Peer, Refused
from ingot.cli.peers.task import Task, read_answers

OURS = "ingot"
ARBITER = "onnxruntime"  # whose answers the others are held against, where it has any
YARDSTICKS = ("product", "reading")  # what the machine can do meanwhile: yardsticks.py
CACHE = "cache"  # Ingot's, in the contest's own folder
PAUSE_S = 0.15  # threads of the one before spin on: of OpenBLAS 0.11 s, of ONNX Runtime 0.05


@dataclass(frozen=True)
class Rules:
    rounds: int = 5
    round_s: float = 0.3  # of one runtime in one round, about
    limit_s: float = 600.0  # for anything that a runtime is asked
    tolerance: float = TOLERANCE
    exact: str = ""  # a file of the answers in float64, for `error`


@dataclass(frozen=True)
class Entry:
    """What a runtime did. `refused` is its reason where it did nothing."""

    runtime: str
    threads: int
    version: str = ""
    refused: str = ""
    rounds_ms: tuple[float, ...] = ()  # the median of each
    import_s: float | None = None  # of its Python package
    load_s: float | None = None  # in a new process, with an empty cache
    cached_s: float | None = None  # in another process, with what the first one cached
    peak_bytes: int | None = None  # of the process that ran
    load_peak_bytes: int | None = None  # of the process that loaded with an empty cache
    distance: float | None = None  # max|a-b|/max|b| from the arbiter's answers
    agrees: bool | None = None
    error: float | None = None  # max|a-b|/max|b| from the answers in float64

    @property
    def time_ms(self) -> float | None:
        return median(self.rounds_ms) if self.rounds_ms else None


@dataclass
class Runner:
    """A runtime that is in the race."""

    peer: Peer
    entry: Entry
    rounds_ms: list[float] = field(default_factory=list)


def hold(
    task: Task, names: Sequence[str], rules: Rules, cold: Entry, folder: Path,
    step: Callable[[str], None],
) -> list[Entry]:  # fmt: skip
    """Load all, compare their answers, let them take turns. `cold` is what `load_cold` found."""
    out: list[Entry] = []
    with ExitStack() as stack:
        runners: list[Runner] = []
        for name in names:
            step(f"{name} loads, {task.threads} threads")
            loaded = _load(name, task, rules, cold, folder, stack)
            runners += [loaded] if isinstance(loaded, Runner) else []
            out += [loaded] if isinstance(loaded, Entry) else []
        take_rounds(runners, rules, step)
        out += [_finish(runner) for runner in runners]
    entries = sorted(out, key=lambda entry: names.index(entry.runtime))
    answers = _answers(entries, folder)
    exact = read_answers(Path(rules.exact)) if rules.exact else []
    return measure_errors(judge(entries, answers, rules.tolerance), answers, exact)


def take_rounds(runners: Sequence[Runner], rules: Rules, step: Callable[[str], None]) -> None:
    """All take their turn in each round; every round begins with another of them."""
    for number in range(rules.rounds):
        shift = number % max(1, len(runners))
        for runner in [*runners[shift:], *runners[:shift]]:
            step(f"{runner.entry.runtime}, round {number + 1}")
            _take_turn(runner, rules.round_s)


def step_count(names: Sequence[str], rules: Rules) -> int:
    return len(names) * (1 + rules.rounds)


def load_cold(task: Task, rules: Rules, folder: Path) -> Entry:
    """Ingot with an empty cache, in a process that ends: what it leaves is there for the next."""
    entry = Entry(OURS, task.threads)
    try:
        with Peer(OURS, folder / CACHE, task.threads, rules.limit_s) as peer:
            return replace(_noted(entry, peer.load(task)), load_peak_bytes=peer.peak_bytes())
    except Refused as why:
        return replace(entry, refused=str(why))


def _load(
    name: str, task: Task, rules: Rules, cold: Entry, folder: Path, stack: ExitStack
) -> Runner | Entry:
    """A runtime with its model, its answers written down; its entry alone if it refuses."""
    entry = replace(cold, threads=task.threads) if name == OURS else Entry(name, task.threads)
    if entry.refused:
        return entry
    try:
        peer = stack.enter_context(Peer(name, folder / CACHE, task.threads, rules.limit_s))
        loaded = peer.load(task)
        if name == OURS:
            entry = replace(entry, cached_s=loaded["load_s"])
        else:
            entry = _noted(entry, loaded)
        if name not in YARDSTICKS:
            peer.answer(_answer_file(folder, name))
    except Refused as why:
        return replace(entry, refused=str(why))
    return Runner(peer, entry)


def _noted(entry: Entry, loaded: dict) -> Entry:
    return replace(entry, **{key: loaded[key] for key in ("version", "import_s", "load_s")})


def _take_turn(runner: Runner, seconds: float) -> None:
    if runner.entry.refused:
        return
    time.sleep(PAUSE_S)
    try:
        runner.rounds_ms.append(1e3 * median(runner.peer.run(seconds)))
    except Refused as why:
        runner.entry = replace(runner.entry, refused=str(why))


def _finish(runner: Runner) -> Entry:
    if runner.entry.refused:
        return runner.entry
    peak = runner.peer.peak_bytes()
    return replace(runner.entry, rounds_ms=tuple(runner.rounds_ms), peak_bytes=peak)


# --- answers --------------------------------------------------------------------------------------


def _answer_file(folder: Path, name: str) -> Path:
    return folder / f"{name}-answers.npz"


def _answers(entries: Sequence[Entry], folder: Path) -> dict[str, list]:
    kept = [e.runtime for e in entries if not e.refused and e.runtime not in YARDSTICKS]
    return {name: read_answers(_answer_file(folder, name)) for name in kept}


def judge(entries: Sequence[Entry], answers: dict[str, list], tolerance: float) -> list[Entry]:
    """Distances from the arbiter: ONNX Runtime, else the first peer that answered."""
    peers = [name for name in (ARBITER, *answers) if name in answers and name != OURS]
    if not peers:
        return list(entries)
    expected = answers[peers[0]]
    judged = []
    for entry in entries:
        if entry.runtime in answers and entry.runtime != peers[0]:
            far = _worst(answers[entry.runtime], expected)
            entry = replace(entry, distance=far, agrees=far <= tolerance)
        judged.append(entry)
    return judged


def measure_errors(entries: Sequence[Entry], answers: dict[str, list], exact: list) -> list[Entry]:
    """Everyone's distance from the answers in float64, where there are some."""
    if not exact:
        return list(entries)
    far = {name: _worst(found, exact) for name, found in answers.items()}
    return [replace(entry, error=far.get(entry.runtime)) for entry in entries]


def _worst(found: list, expected: list) -> float:
    if len(found) != len(expected):
        return float("inf")
    return max((distance(a, b) for a, b in zip(found, expected)), default=0.0)


def best_peer(entries: Sequence[Entry]) -> Entry | None:
    others = [e for e in entries if e.runtime not in (OURS, *YARDSTICKS)]
    timed = [e for e in others if e.time_ms is not None]
    return min(timed, key=lambda e: e.time_ms or 0.0, default=None)

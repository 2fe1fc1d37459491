"""The benchmark of one model: Ingot and other runtimes, timed in interleaved rounds, and compared.

In: a `Task` and the names of runtimes. Out: an `Entry` each. Every runtime has a process of its own
and the same number of threads. In each round every runtime runs repeatedly for `round_s`, one after
the other, so that noise from other processes affects all of them alike. The reported time is the
median over the rounds of the median within a round; p99 is that of all calls, if there are enough.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median, quantiles

from ingot.cli.compare import TOLERANCE, distance
from ingot.cli.peers.process import Peer, PeerError
from ingot.cli.peers.runtimes import (
    AGAIN,
    OURS,
    REFERENCE,
    ROOFLINE_PROBES,
    WITHOUT_WINOGRAD,
    is_ours,
    is_peer,
)
from ingot.cli.peers.task import Task, read_outputs

CACHE = "cache"  # folder of Ingot's cache, inside the benchmark's own folder
CALLS_OF_P99 = 500  # with fewer calls, p99 is one of the five slowest
# before each round: threads of the runtime before spin on, measured 0.11 s for OpenBLAS and 0.05 s
# for ONNX Runtime
PAUSE_S = 0.15


@dataclass(frozen=True)
class BenchOptions:
    rounds: int = 5
    round_s: float = 0.3  # target duration of one round of one runtime
    limit_s: float = 600.0  # timeout of any request to a runtime's process
    tolerance: float = TOLERANCE
    exact: str = ""  # a file of the outputs computed in float64, for `error`


@dataclass(frozen=True)
class Entry:
    """The measurements of one runtime. `failure` is its error message if it could not run."""

    runtime: str
    threads: int
    version: str = ""
    failure: str = ""
    rounds_ms: tuple[float, ...] = ()  # the median of each round
    calls: int = 0  # in all rounds
    p99_ms: float | None = None  # of all calls; None if they are too few
    uses: tuple[str, ...] = ()  # algorithms that a reader wants to know of: winograd
    import_s: float | None = None  # importing its Python package
    load_s: float | None = None  # loading the model in a new process, with an empty cache
    first_s: float | None = None  # the first call; torch.compile compiles in it
    cached_s: float | None = None  # the same in another process, with a warm cache
    peak_bytes: int | None = None  # peak RSS of the process that ran
    load_peak_bytes: int | None = None  # peak RSS of the process that loaded with an empty cache
    distance: float | None = None  # max|a-b|/max|b| from the reference's outputs
    agrees: bool | None = None
    error: float | None = None  # max|a-b|/max|b| from the float64 outputs

    @property
    def time_ms(self) -> float | None:
        return median(self.rounds_ms) if self.rounds_ms else None


@dataclass
class Runner:
    """A runtime that has loaded the model."""

    peer: Peer
    entry: Entry
    rounds_ms: list[float] = field(default_factory=list)
    calls_s: list[float] = field(default_factory=list)


def benchmark(
    task: Task, names: Sequence[str], options: BenchOptions, cold: Entry, folder: Path,
    step: Callable[[str], None],
) -> list[Entry]:  # fmt: skip
    """Load all runtimes, time them in rounds, compare their outputs. `cold`: from `load_cold`."""
    out: list[Entry] = []
    with ExitStack() as stack:
        runners: list[Runner] = []
        names = _applicable(names, cold)
        for name in names:
            step(f"loading {name}, {task.threads} threads")
            loaded = _load(name, task, options, cold, folder, stack)
            runners += [loaded] if isinstance(loaded, Runner) else []
            out += [loaded] if isinstance(loaded, Entry) else []
        time_rounds(runners, options, step)
        out += [_finish(runner) for runner in runners]
    entries = sorted(out, key=lambda entry: names.index(entry.runtime))
    outputs = _outputs(entries, folder)
    exact = read_outputs(Path(options.exact)) if options.exact else []
    compared = compare_with_reference(entries, outputs, options.tolerance)
    return measure_errors(compared, outputs, exact)


def _applicable(names: Sequence[str], cold: Entry) -> list[str]:
    """Without a build that would be the same as Ingot's."""
    return [name for name in names if name != WITHOUT_WINOGRAD or "winograd" in cold.uses]


def time_rounds(
    runners: Sequence[Runner], options: BenchOptions, step: Callable[[str], None]
) -> None:
    """Time every runtime once per round; each round starts with the next one in the list."""
    for number in range(options.rounds):
        shift = number % max(1, len(runners))
        for runner in [*runners[shift:], *runners[:shift]]:
            step(f"{runner.entry.runtime}, round {number + 1}")
            _time_round(runner, options.round_s)


def step_count(names: Sequence[str], options: BenchOptions) -> int:
    return len(names) * (1 + options.rounds)


def load_cold(task: Task, options: BenchOptions, folder: Path) -> Entry:
    """Compile with Ingot and an empty cache, in a process that ends; it leaves a warm cache."""
    entry = Entry(OURS, task.threads)
    try:
        with Peer(OURS, folder / CACHE, task.threads, options.limit_s) as peer:
            loaded = _with_load_times(entry, peer.load(task))
            return replace(loaded, load_peak_bytes=peer.peak_bytes())
    except PeerError as why:
        return replace(entry, failure=str(why))


def _load(
    name: str, task: Task, options: BenchOptions, cold: Entry, folder: Path, stack: ExitStack
) -> Runner | Entry:
    """A runtime with the model loaded and its outputs saved; only its entry if it failed."""
    entry = replace(cold, threads=task.threads) if name == OURS else Entry(name, task.threads)
    if entry.failure:
        return entry
    try:
        peer = Peer(name, folder / _cache(name), task.threads, options.limit_s)
        stack.enter_context(peer)
        loaded = peer.load(task)
        if name == OURS:
            entry = replace(entry, cached_s=loaded["load_s"], first_s=loaded["first_s"])
        else:
            entry = _with_load_times(entry, loaded)
        if name not in ROOFLINE_PROBES:
            peer.save_outputs(_outputs_file(folder, name))
    except PeerError as why:
        return replace(entry, failure=str(why))
    return Runner(peer, entry)


def _cache(name: str) -> str:
    """Builds that differ have caches of their own, so that each is compiled once."""
    return f"{CACHE}-{name}" if is_ours(name) and name not in (OURS, AGAIN) else CACHE


def _with_load_times(entry: Entry, loaded: dict) -> Entry:
    keys = ("version", "import_s", "load_s", "first_s")
    return replace(entry, uses=tuple(loaded["uses"]), **{key: loaded[key] for key in keys})


def _time_round(runner: Runner, seconds: float) -> None:
    if runner.entry.failure:
        return
    time.sleep(PAUSE_S)
    try:
        calls = runner.peer.run(seconds)
        runner.calls_s += calls
        runner.rounds_ms.append(1e3 * median(calls))
    except PeerError as why:
        runner.entry = replace(runner.entry, failure=str(why))


def _finish(runner: Runner) -> Entry:
    if runner.entry.failure:
        return runner.entry
    return replace(
        runner.entry,
        rounds_ms=tuple(runner.rounds_ms),
        calls=len(runner.calls_s),
        p99_ms=p99_ms(runner.calls_s),
        peak_bytes=runner.peer.peak_bytes(),
    )


def p99_ms(calls_s: Sequence[float]) -> float | None:
    if len(calls_s) < CALLS_OF_P99:
        return None
    return 1e3 * quantiles(calls_s, n=100, method="inclusive")[98]


# --- outputs --------------------------------------------------------------------------------------


def _outputs_file(folder: Path, name: str) -> Path:
    return folder / f"{name}-outputs.npz"


def _outputs(entries: Sequence[Entry], folder: Path) -> dict[str, list]:
    ran = [e.runtime for e in entries if not e.failure and e.runtime not in ROOFLINE_PROBES]
    return {name: read_outputs(_outputs_file(folder, name)) for name in ran}


def compare_with_reference(
    entries: Sequence[Entry], outputs: dict[str, list], tolerance: float
) -> list[Entry]:
    """Distances from the reference: ONNX Runtime, else the first other runtime that ran."""
    peers = [name for name in (REFERENCE, *outputs) if name in outputs and is_peer(name)]
    if not peers:
        return list(entries)
    expected = outputs[peers[0]]
    compared = []
    for entry in entries:
        if entry.runtime in outputs and entry.runtime != peers[0]:
            worst = _worst_distance(outputs[entry.runtime], expected)
            entry = replace(entry, distance=worst, agrees=worst <= tolerance)
        compared.append(entry)
    return compared


def measure_errors(entries: Sequence[Entry], outputs: dict[str, list], exact: list) -> list[Entry]:
    """Each runtime's distance from the float64 outputs, if there are any."""
    if not exact:
        return list(entries)
    worst = {name: _worst_distance(found, exact) for name, found in outputs.items()}
    return [replace(entry, error=worst.get(entry.runtime)) for entry in entries]


def _worst_distance(found: list, expected: list) -> float:
    if len(found) != len(expected):
        return float("inf")
    return max((distance(a, b) for a, b in zip(found, expected)), default=0.0)


def best_peer(entries: Sequence[Entry]) -> Entry | None:
    timed = [e for e in entries if is_peer(e.runtime) and e.time_ms is not None]
    return min(timed, key=lambda e: e.time_ms or 0.0, default=None)

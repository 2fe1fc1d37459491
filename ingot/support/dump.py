"""The IR text and time of each stage. In: names and texts. Out: files, a table.

The pipeline opens one `Dump` per compilation. A text given as a function is made only if texts are
kept or written. With a folder set, stage 3 called "fuse" becomes `03-fuse.txt` as soon as it has
run, so that it is there after a crash in the next stage.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ingot.support.errors import IngotError
from ingot.support.text import columns

TEXT_VERSION = 2  # of dumps; raise it when an older text would no longer mean the same
_VERSION_LINE = re.compile(r"# ingot (graph|program) (\d+)$")


def with_version(kind: str, text: str) -> str:
    """The text of a "graph" or "program" after a line with its version."""
    return f"# ingot {kind} {TEXT_VERSION}\n{text}"


def check_version(kind: str, text: str) -> None:
    """Refuse a dump of another kind or version. A text that a person wrote has no version line."""
    found = _VERSION_LINE.match(text.partition("\n")[0].strip())
    if found is None:
        return
    if found[1] != kind:
        what = f"this is a dump of a {found[1]}, the stage takes a {kind}"
        raise IngotError("bad-text", what, where="line 1", hint="start from a stage that takes it")
    if int(found[2]) != TEXT_VERSION:
        what = f"the dump has version {found[2]}, this Ingot reads version {TEXT_VERSION}"
        raise IngotError("bad-text", what, where="line 1", hint="dump the model again")


@dataclass(frozen=True)
class StageDump:
    """One stage that has run; its text is empty unless texts are kept."""

    stage: str
    text: str
    time_s: float


class Dump:
    """`folder`: where to write the texts; `keep`: keep them in memory too (the `show` command)."""

    def __init__(self, folder: str | Path = "", keep: bool = False):
        self.folder = Path(folder) if folder else None
        self.keep = keep
        self.entries: list[StageDump] = []

    @property
    def wants_text(self) -> bool:
        return self.keep or self.folder is not None

    def record(
        self, stage: str, text: str | Callable[[], str], time_s: float = 0.0, suffix: str = "txt"
    ) -> None:
        """Add a stage that has run."""
        made = (text() if callable(text) else text) if self.wants_text else ""
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            name = f"{len(self.entries):02d}-{_file_name(stage)}.{suffix}"
            (self.folder / name).write_text(made, encoding="utf-8")
        self.entries.append(StageDump(stage, made if self.keep else "", time_s))

    @contextmanager
    def stage(self, name: str) -> Iterator[RunningStage]:
        """Time the body; `RunningStage.show` sets the stage's text."""
        running = RunningStage()
        start = time.perf_counter()
        yield running
        took = time.perf_counter() - start
        self.record(name, running.text, took, running.suffix)

    def add_time(self, time_s: float) -> None:
        """More time of the stage last recorded: of its verification."""
        last = self.entries[-1]
        self.entries[-1] = replace(last, time_s=last.time_s + time_s)

    @property
    def times_s(self) -> dict[str, float]:
        """Wall time by stage, with its verification; a stage that ran twice counts both."""
        total: dict[str, float] = {}
        for entry in self.entries:
            total[entry.stage] = total.get(entry.stage, 0.0) + entry.time_s
        return total

    def table(self) -> str:
        """Stages and milliseconds, one line each."""
        rows = [(stage, f"{time_s * 1e3:9.1f} ms") for stage, time_s in self.times_s.items()]
        return "\n".join(columns(rows))


class RunningStage:
    """A stage that runs now, and its text."""

    def __init__(self) -> None:
        self.text: str | Callable[[], str] = ""
        self.suffix = "txt"

    def show(self, text: str | Callable[[], str], suffix: str = "txt") -> None:
        self.text, self.suffix = text, suffix


def _file_name(stage: str) -> str:
    return "".join(ch if ch.isalnum() or ch in "-_." else "-" for ch in stage)

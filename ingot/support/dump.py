"""Records what each stage made and how long it took. In: names and texts. Out: files, a table.

The pipeline opens one `Dump` per compilation. Texts are made only when someone wants them: pass a
function. With a folder set, stage 3 called "fuse" becomes `03-fuse.txt` as soon as it is recorded,
so that a crash in the next stage leaves it behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ingot.support.text import columns


@dataclass(frozen=True)
class Entry:
    """One stage: its text is empty where nobody asked for texts."""

    stage: str
    text: str
    time_s: float


class Dump:
    """`folder`: where to write the texts; `keep`: hold them in memory too (the `show` command)."""

    def __init__(self, folder: str | Path = "", keep: bool = False):
        self.folder = Path(folder) if folder else None
        self.keep = keep
        self.entries: list[Entry] = []

    @property
    def wants_text(self) -> bool:
        return self.keep or self.folder is not None

    def record(
        self, stage: str, text: str | Callable[[], str], time_s: float = 0.0, suffix: str = "txt"
    ) -> None:
        """Note that `stage` ended; a text given as a function is made only if it is wanted."""
        made = (text() if callable(text) else text) if self.wants_text else ""
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            name = f"{len(self.entries):02d}-{_file_name(stage)}.{suffix}"
            (self.folder / name).write_text(made, encoding="utf-8")
        self.entries.append(Entry(stage, made if self.keep else "", time_s))

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """Times the body; what the body hands to `Stage.show` is the stage's text."""
        running = Stage()
        start = time.perf_counter()
        yield running
        took = time.perf_counter() - start
        self.record(name, running.text, took, running.suffix)

    @property
    def times_s(self) -> dict[str, float]:
        """Wall time by stage; a stage that ran twice counts both."""
        total: dict[str, float] = {}
        for entry in self.entries:
            total[entry.stage] = total.get(entry.stage, 0.0) + entry.time_s
        return total

    def table(self) -> str:
        """Stage and milliseconds, one line each."""
        rows = [(stage, f"{time_s * 1e3:9.1f} ms") for stage, time_s in self.times_s.items()]
        return "\n".join(columns(rows))


class Stage:
    """What a running stage says about itself."""

    def __init__(self) -> None:
        self.text: str | Callable[[], str] = ""
        self.suffix = "txt"

    def show(self, text: str | Callable[[], str], suffix: str = "txt") -> None:
        self.text, self.suffix = text, suffix


def _file_name(stage: str) -> str:
    return "".join(ch if ch.isalnum() or ch in "-_." else "-" for ch in stage)

"""Progress bars for a terminal, with rich. Loaded when a bar is drawn: progress.py, cli/."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


def new_bar() -> Progress:
    """On stderr and transient: stdout has only the command's result. Names may look like markup."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )


class StageBar:
    """The stages of a compilation."""

    def __init__(self) -> None:
        self._bar = new_bar()
        self._task = self._bar.add_task("compiling", total=None)

    def start(self) -> None:
        self._bar.start()

    def show(self, done: int, total: int, text: str) -> None:
        self._bar.update(self._task, total=total, completed=done, description=text)

    def stop(self) -> None:
        self._bar.stop()

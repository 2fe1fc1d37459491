"""Tables and progress bars for a terminal, with rich. Loaded by output.py only for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ingot.support.dump import Dump


def print_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], is_number: Sequence[bool]
) -> None:
    table = Table()
    for i, (name, number) in enumerate(zip(head, [*is_number, *[False] * len(head)])):
        # the first column is a name that users copy to other commands: never wrap it
        table.add_column(Text(name), justify="right" if number else "left", no_wrap=i == 0)
    for row in rows:
        table.add_row(*map(Text, row))  # as Text: a name may look like markup
    Console(highlight=False).print(table)


def _bar() -> Progress:
    """On stderr and transient: stdout has only the command's result."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )


class StageBar(Dump):
    """A record of a compilation that advances a progress bar with every stage."""

    def __init__(self, folder: str | Path = ""):
        super().__init__(folder)
        self._bar = _bar()
        self._task = self._bar.add_task("compiling", total=None)

    def __enter__(self) -> StageBar:
        self._bar.start()
        return self

    def __exit__(self, *why: object) -> None:
        self._bar.stop()

    def record(self, stage: str, *args: Any, **options: Any) -> None:
        super().record(stage, *args, **options)
        names = self.expected
        done = names.index(stage) + 1 if stage in names else len(names)
        text = names[done] if done < len(names) else "loading"
        self._bar.update(self._task, total=len(names), completed=done, description=text)


@contextmanager
def step_bar(total: int | None, what: str) -> Iterator[Callable[[str], None]]:
    with _bar() as bar:
        task = bar.add_task(what, total=total)

        def step(name: str) -> None:
            bar.update(task, advance=1, description=f"{what}: {name}")

        yield step

"""Tables and progress bars for a terminal, with rich. Loaded by output.py only for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ingot.support.bar import new_bar


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


@contextmanager
def step_bar(total: int | None, what: str) -> Iterator[Callable[[str], None]]:
    with new_bar() as bar:
        task = bar.add_task(what, total=total)

        def step(name: str) -> None:
            bar.update(task, advance=1, description=f"{what}: {name}")

        yield step

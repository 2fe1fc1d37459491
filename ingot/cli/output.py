"""How the commands print: rich tables on a terminal, aligned plain text anywhere else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from ingot.runtime.executable import Executable
from ingot.support.dump import Dump
from ingot.support.text import columns

Rows = Iterable[Sequence[str]]


def print_table(head: Sequence[str], rows: Rows) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        for line in columns([tuple(head), *map(tuple, rows)]):
            click.echo(line)
        return
    table = Table(*head)
    for row in rows:
        table.add_row(*row)
    console.print(table, markup=False)


def print_times(record: Dump) -> None:
    rows = [(name, f"{time_s * 1e3:9.1f}") for name, time_s in record.times_s.items()]
    print_table(("stage", "       ms"), rows)


def print_memory(exe: Executable) -> None:
    print_table(("memory", "bytes"), [(name, str(size)) for name, size in exe.memory.items()])


def print_outputs(exe: Executable, outputs: Sequence[np.ndarray]) -> None:
    """Name, type and a few figures; who wants the numbers takes --save."""
    rows = [
        (port.name, f"{port.dtype}{list(array.shape)}", *_figures(array))
        for port, array in zip(exe.outputs, outputs)
    ]
    print_table(("output", "type", "min", "mean", "max"), rows)


def _figures(array: np.ndarray) -> list[str]:
    if not array.size:
        return ["-", "-", "-"]
    wide = array.astype(np.float64)
    return [f"{figure(wide):.6g}" for figure in (np.min, np.mean, np.max)]

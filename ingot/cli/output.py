"""How the commands print: rich tables and bars on a terminal, aligned plain text or JSON otherwise.

The rich package is loaded only for a terminal (terminal.py), not for a pipe or --help.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import click
import numpy as np

from ingot.arith import expr as arith
from ingot.runtime.package import Port
from ingot.support import lazy, options, progress
from ingot.support.dump import Dump
from ingot.support.text import columns

Rows = Iterable[Sequence[str]]
_NUMBER = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?( %|×)?|-|inf|nan")


def print_table(head: Sequence[str], rows: Rows) -> None:
    """Print a table; columns of numbers are right-aligned."""
    body = [tuple(row) for row in rows]
    if sys.stdout.isatty():
        lazy.load("cli.terminal").print_table(head, body, numeric_columns(body))
        return
    for line in columns(align([tuple(head), *body], numeric_columns(body))):
        click.echo(line)


def numeric_columns(rows: Sequence[Sequence[str]]) -> list[bool]:
    return [all(_NUMBER.fullmatch(cell.strip()) for cell in column) for column in zip(*rows)]


def align(rows: list[tuple[str, ...]], is_number: list[bool]) -> list[tuple[str, ...]]:
    """Rows with the cells of numeric columns right-aligned."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(is_number))]
    return [
        tuple(c.rjust(w) if n else c for c, w, n in zip(row, widths, is_number)) for row in rows
    ]


def print_json(data: dict[str, Any]) -> None:
    click.echo(json.dumps(plain(data), indent=2, ensure_ascii=False))


def plain(value: Any) -> Any:
    """A value that JSON can represent: symbolic sizes as text, NaN and infinity as null."""
    match value:
        case dict():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case arith.Expr():
            number = arith.as_int(value)
            return str(value) if number is None else number
        case Path():
            return str(value)
        case float():
            return value if math.isfinite(value) else None
    return value


def ports(items: Iterable[Port]) -> list[dict[str, Any]]:
    return [{"name": p.name, "dtype": p.dtype, "shape": list(p.shape)} for p in items]


def steps(total: int | None, what: str) -> AbstractContextManager[Any]:
    """A function to call with the name of each step; on a terminal it drives a progress bar.
    `total`: the number of steps; None: unknown."""
    if progress.is_terminal() and options.current().progress:
        return lazy.load("cli.terminal").step_bar(total, what)
    return nullcontext(lambda name: None)


def print_times(record: Dump) -> None:
    rows = [(name, f"{time_s * 1e3:.1f}") for name, time_s in record.times_s.items()]
    print_table(("stage", "ms"), rows)


def describe_outputs(outputs: Iterable[tuple[Port, np.ndarray]]) -> list[dict[str, Any]]:
    """Name, type, shape, and minimum, mean and maximum of each output."""
    return [
        {"name": port.name, "dtype": port.dtype, "shape": list(array.shape)} | _statistics(array)
        for port, array in outputs
    ]


def print_outputs(rows: Iterable[dict[str, Any]]) -> None:
    head = ("output", "type", "min", "mean", "max")
    cells = [
        (row["name"], f"{row['dtype']}{row['shape']}", *(_short(row[k]) for k in head[2:]))
        for row in rows
    ]
    print_table(head, cells)


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _statistics(array: np.ndarray) -> dict[str, float | None]:
    if not array.size or array.dtype == object:
        return {"min": None, "mean": None, "max": None}
    wide = array.astype(np.float64)
    return {"min": float(wide.min()), "mean": float(wide.mean()), "max": float(wide.max())}

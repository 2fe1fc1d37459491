"""Indented text, line by line. Every printer of an IR or of code uses a `Writer`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class Writer:
    """Collects lines at the current depth.

    w = Writer()
    w.line("for i in range(4):")
    with w.indent():
        w.line("work(i)")
    """

    def __init__(self, step: str = "    "):
        self._step = step
        self._depth = 0
        self._lines: list[str] = []

    def line(self, text: str = "") -> None:
        """One line; an empty one carries no indentation."""
        self._lines.append(self._step * self._depth + text if text else "")

    def lines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.line(text)

    def block(self, text: str) -> None:
        """A text of several lines, each moved to the current depth."""
        self.lines(text.splitlines())

    @contextmanager
    def indent(self, opening: str = "", closing: str = "") -> Iterator[None]:
        """One level deeper, between an opening and a closing line where they are given."""
        if opening:
            self.line(opening)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        if closing:
            self.line(closing)

    def text(self) -> str:
        """All lines, each ended by a newline."""
        return "".join(line + "\n" for line in self._lines)

    def __str__(self) -> str:
        return self.text()


def columns(rows: Iterable[tuple[str, ...]], gap: str = "  ") -> list[str]:
    """Rows of cells as aligned lines, left-justified."""
    table = list(rows)
    if not table:
        return []
    widths = [
        max(len(row[i]) for row in table if i < len(row)) for i in range(max(map(len, table)))
    ]
    return [gap.join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in table]


def with_unit(count: int, unit: str) -> str:
    """9800000 B as 9.8 MB."""
    power = min(4, max(0, len(str(count)) - 1) // 3)
    return f"{count / 1000**power:.{1 if power else 0}f} {('', 'k', 'M', 'G', 'T')[power]}{unit}"

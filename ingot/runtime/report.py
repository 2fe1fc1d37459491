"""What `exe.report()` prints. In: rows that the back end filled. Out: a table in plain text.

A row is one launch: the kernel, the user's nodes it came from, how threads and lanes share its
work, what it costs, and why it was left serial or scalar where it was. Read by executable.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.support.text import columns

HEAD = ("kernel", "family", "threads", "lanes", "flops", "bytes", "left slow because", "from")


@dataclass(frozen=True)
class LaunchRow:
    """Sizes are integer expressions over the package's symbols; None where nobody can tell."""

    kernel: str
    origin: str  # the user's names
    family: str  # of the anchor; names the schedule rule
    pieces: arith.Expr  # what threads share out; 1: one thread does it all
    lanes: int  # of its widest access; 1: scalar
    flops: arith.Expr | None  # an estimate: every guard taken
    arg_bytes: arith.Expr  # of the arrays it is given
    why_serial: str = ""
    why_scalar: str = ""

    @property
    def is_serial(self) -> bool:
        return arith.is_const(self.pieces, 1)

    @property
    def why(self) -> str:
        reasons = (("serial", self.why_serial), ("scalar", self.why_scalar))
        return "; ".join(f"{what}: {why}" for what, why in reasons if why)

    def cells(self) -> tuple[str, ...]:
        return (
            self.kernel,
            self.family or "-",
            "serial" if self.is_serial else f"{self.pieces} pieces",
            str(self.lanes) if self.lanes > 1 else "scalar",
            "?" if self.flops is None else str(self.flops),
            str(self.arg_bytes),
            self.why or "-",
            self.origin,
        )

    def __str__(self) -> str:
        return "  ".join(cell for cell in self.cells() if cell)


def table(rows: Iterable[LaunchRow]) -> str:
    """One line a launch, in the order they run, under a heading."""
    return "\n".join(columns([HEAD, *(row.cells() for row in rows)]))

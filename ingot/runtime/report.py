"""What `exe.report()` prints. In: rows that the back end filled. Out: a table in plain text.

A row is one launch: the kernel, the user's nodes it came from, how threads and lanes share its
work, what it costs, how long it should take and took, and why it was left serial or scalar where it
was. Read by executable.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.support.text import columns

HEAD = ("kernel", "family", "threads", "lanes", "tile", "flops", "bytes", "predicted µs",
        "measured µs", "left slow because", "layouts", "from")  # fmt: skip


@dataclass(frozen=True)
class Pace:
    """What one core of the target is taken to do (tiles.py). `levels` are places where data can
    lie, nearest first: the bytes of each (None: no end), bytes moved per ns; the last is shared."""

    flops_per_ns: float  # for each lane
    lanes: int  # that count, at most
    levels: tuple[tuple[int | None, float], ...]

    def time_us(self, flops: int, moved_bytes: int, lanes: int, cores: int) -> float:
        """The arithmetic, or moving the arrays once from where each core's share fits."""
        compute_ns = flops / (self.flops_per_ns * min(lanes, self.lanes) * cores)
        share = moved_bytes / cores
        held, rate = next(x for x in self.levels if x[0] is None or share <= x[0])
        move_ns = moved_bytes / (rate if held is None else rate * cores)
        return max(compute_ns, move_ns) / 1e3


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
    tile: str = ""  # of a product: rows x columns of results that stay in registers
    layouts: str = ""  # of the arrays it is given, as they lie in memory: read -> written

    @property
    def is_serial(self) -> bool:
        return arith.is_const(self.pieces, 1)

    @property
    def why(self) -> str:
        reasons = (("serial", self.why_serial), ("scalar", self.why_scalar))
        return "; ".join(f"{what}: {why}" for what, why in reasons if why)

    def predicted_us(self, pace: Pace, threads: int, sizes: Mapping[str, int]) -> float | None:
        """How long it should take on so many threads; None where a size is not known."""
        flops, moved, pieces = (number(e, sizes) for e in (self.flops, self.arg_bytes, self.pieces))
        if flops is None or moved is None or pieces is None:
            return None
        return pace.time_us(flops, moved, self.lanes, max(1, min(threads, pieces)))

    def cells(self, predicted_us: float | None, measured_us: float | None) -> tuple[str, ...]:
        return (
            self.kernel,
            self.family or "-",
            "serial" if self.is_serial else f"{self.pieces} pieces",
            str(self.lanes) if self.lanes > 1 else "scalar",
            self.tile or "-",
            "?" if self.flops is None else str(self.flops),
            str(self.arg_bytes),
            _short(predicted_us),
            _short(measured_us),
            self.why or "-",
            self.layouts or "-",
            self.origin,
        )

    def __str__(self) -> str:
        return "  ".join(cell for cell in self.cells(None, None) if cell)


def lines(
    rows: Iterable[LaunchRow],
    pace: Pace | None,
    threads: int = 1,
    sizes: Mapping[str, int] | None = None,
    measured_us: Sequence[float] = (),
) -> list[tuple[str, ...]]:
    """The cells of each launch, in the order they run."""
    found = []
    for i, row in enumerate(rows):
        predicted = row.predicted_us(pace, threads, sizes or {}) if pace else None
        found.append(row.cells(predicted, measured_us[i] if measured_us else None))
    return found


def table(cells: Iterable[tuple[str, ...]]) -> str:
    """The cells under a heading."""
    return "\n".join(columns([HEAD, *cells]))


def number(size: arith.Expr | None, sizes: Mapping[str, int]) -> int | None:
    """What an expression is at these sizes; None where they do not say."""
    if size is None or arith.free_vars(size) - sizes.keys():
        return None
    return arith.evaluate(size, sizes)


def _short(time_us: float | None) -> str:
    return "-" if time_us is None else f"{time_us:.2f}" if time_us < 10 else f"{time_us:.0f}"

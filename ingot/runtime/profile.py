"""The result of `exe.profile(feeds)`: time, barrier wait, FLOP/s and roofline of each launch.

In: a device's counters, of a package compiled with them; the wall time of the same runs, which
calibrates the counters' clock; the device's measured peak. A launch's time is that of its slowest
thread; its wait is the threads' mean time in barriers after it. Made by executable.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ingot.runtime.report import LaunchRow, number
from ingot.support import lazy
from ingot.support.text import columns

HEAD = ("kernel", "time µs", "of run", "wait µs", "FLOPs", "bytes", "GFLOP/s", "GB/s",
        "of roofline", "lanes", "origin")  # fmt: skip


@dataclass(frozen=True)
class Level:
    """A level of the memory hierarchy: its size per thread (None: main memory), its bandwidth."""

    name: str
    bytes: int | None
    bytes_per_us: float  # of a copy: bytes read plus bytes written


@dataclass(frozen=True)
class Peak:
    threads: int
    flops_per_us: float
    levels: tuple[Level, ...]  # L1, L2 …, main memory

    def bound(self, flops: int | None, moved_bytes: int) -> tuple[str, float]:
        """The roofline model: what bounds a kernel ("fma" or a memory level), and its least time in
        µs. Its arrays move once, from the nearest level that holds each thread's part of them."""
        bytes_per_thread = moved_bytes / self.threads
        level = next(x for x in self.levels if x.bytes is None or bytes_per_thread <= x.bytes)
        compute_us, move_us = (flops or 0) / self.flops_per_us, moved_bytes / level.bytes_per_us
        return ("fma", compute_us) if compute_us > move_us else (level.name, move_us)

    def __str__(self) -> str:
        copies = ", ".join(f"{x.name} {x.bytes_per_us / 1e3:.1f}" for x in self.levels)
        return (
            f"measured peak: {self.flops_per_us / 1e3:.1f} GFLOP/s (f32 FMA); "
            f"copy bandwidth in GB/s: {copies}"
        )


@dataclass(frozen=True)
class ProfileRow:
    """One launch; times are means over the runs."""

    kernel: str
    origin: str
    time_us: float
    wait_us: float
    flops: int | None
    bytes: int
    lanes: int
    bound: str  # what limits it in the roofline model: "fma", a cache ("L1" …) or "memory"
    least_us: float  # its time at the peak rate of that bound

    @property
    def gflops(self) -> float | None:
        return None if self.flops is None or not self.time_us else self.flops / self.time_us / 1e3

    @property
    def gbytes(self) -> float:
        return self.bytes / self.time_us / 1e3 if self.time_us else 0.0

    @property
    def roofline_fraction(self) -> float:
        """Roofline time over measured time: 1 at the roof."""
        return self.least_us / self.time_us if self.time_us else 0.0

    def cells(self, total_us: float) -> tuple[str, ...]:
        rate = self.gflops
        return (
            self.kernel,
            f"{self.time_us:.1f}",
            f"{100 * self.time_us / total_us:.1f} %",
            f"{self.wait_us:.1f}",
            "?" if self.flops is None else str(self.flops),
            str(self.bytes),
            "-" if not rate else f"{rate:.1f}",
            f"{self.gbytes:.1f}",
            f"{100 * self.roofline_fraction:.0f} % {self.bound}",
            str(self.lanes) if self.lanes > 1 else "scalar",
            self.origin,
        )


@dataclass(frozen=True)
class Profile:
    """Times of a run by launch: `rows`; `print(profile)` is a table of them."""

    rows: tuple[ProfileRow, ...]
    peak: Peak
    run_us: float  # wall time of one run, counters included
    threads: int
    runs: int

    @property
    def summary(self) -> str:
        """The run in one line."""
        inside = sum(row.time_us for row in self.rows)
        waits = sum(row.wait_us for row in self.rows)
        return (
            f"{self.run_us:.1f} µs per run (mean of {self.runs} runs, threads: {self.threads}): "
            f"{inside:.1f} µs in kernels, {waits:.1f} µs in barriers"
        )

    def __str__(self) -> str:
        table = [HEAD, *(row.cells(self.run_us) for row in self.rows)]
        return "\n".join([*columns(table), self.summary, str(self.peak)])

    def _repr_html_(self) -> str:
        return lazy.load("runtime.html").profile_html(self)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        """The table as text too, for a terminal and for files that hold no HTML."""
        return {"text/plain": str(self), "text/html": self._repr_html_()}


@dataclass(frozen=True)
class Counters:
    """What a device counted in one or more runs, in ticks of its own clock."""

    threads: Sequence[Sequence[tuple[int, int]]]  # for each thread, (busy, wait) of every launch
    ticks: int  # that passed meanwhile
    sizes: Mapping[str, int]  # of the dynamic dimensions, data-dependent ones included
    peak: Peak


def make_profile(
    rows: Iterable[LaunchRow],
    numbers: Sequence[int],
    counters: Counters,
    elapsed_us: float,
    runs: int,
) -> Profile:
    """`numbers`: the launch of each row; the counters and the time are sums over the runs."""
    counts, sizes, peak = counters.threads, counters.sizes, counters.peak
    us_per_tick = elapsed_us / max(1, counters.ticks) / runs
    found = []
    for row, launch in zip(rows, numbers):
        busy = max(thread[launch][0] for thread in counts)
        wait = sum(thread[launch][1] for thread in counts) / len(counts)
        flops, moved = number(row.flops, sizes), number(row.arg_bytes, sizes) or 0
        found.append(
            ProfileRow(
                row.kernel,
                row.origin,
                busy * us_per_tick,
                wait * us_per_tick,
                flops,
                moved,
                row.lanes,
                *peak.bound(flops, moved),
            )
        )
    return Profile(tuple(found), peak, elapsed_us / runs, len(counts), runs)

"""When each thread ran what: the result of `exe.trace(feeds)`, a file in Chrome's trace format.

In: the events that a device's threads recorded, with their own time stamps, and the report's rows.
Out: JSON for ui.perfetto.dev and chrome://tracing: a track for each thread, a slice for each call
of a kernel and each wait in a barrier, named after the model's layers. Made by executable.py.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, NamedTuple

from ingot.runtime.report import LaunchRow, number
from ingot.support.origins import layer_names, model_nodes

PID = 1
NAME_LENGTH = 60  # of a slice; its arguments have all node names
CALIBRATION_S = 0.02  # least time over which ticks are counted, for an error below a thousandth


class Event(NamedTuple):
    """Fields of support/abi.py, EVENT: iterations low … high-1 of a launch, or a wait after it."""

    launch: int
    wait: int  # 0: a call of the kernel
    low: int
    high: int
    start: int
    stop: int


@dataclass(frozen=True)
class Events:
    """What a device recorded; times are ticks of its own clock."""

    threads: Sequence[Sequence[Event]]  # thread 0 is the caller's
    calls: Sequence[tuple[int, int]]  # start and stop of each call, from outside
    us_per_tick: float
    sizes: Mapping[str, int]  # of the dynamic dimensions, data-dependent ones included
    lost: int  # events without room


class Clock:
    """Relates ticks to wall time, from its construction on."""

    def __init__(self, ticks: Callable[[], int]):
        self._ticks = ticks
        self._first_s, self._first = time.perf_counter(), ticks()

    def us_per_tick(self) -> float:
        while time.perf_counter() - self._first_s < CALIBRATION_S:
            pass  # not a sleep, in which some counters stand still
        elapsed_s, ticks = time.perf_counter() - self._first_s, self._ticks() - self._first
        return elapsed_s * 1e6 / max(1, ticks)


@dataclass(frozen=True)
class Trace:
    """`rows`: the report's row of each launch number that is a kernel."""

    name: str
    rows: Mapping[int, LaunchRow]
    events: Events

    def save(self, path: str | PathLike) -> None:
        """Write a file for ui.perfetto.dev or chrome://tracing."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.as_dict(), file, ensure_ascii=False)

    def as_dict(self) -> dict[str, Any]:
        """The JSON object format of Chrome's traces; times are microseconds."""
        about = {"model": self.name, "sizes": dict(self.events.sizes), "lost": self.events.lost}
        events = [*self._metadata(), *self._slices()]
        return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}

    def _metadata(self) -> Iterator[dict[str, Any]]:
        def about(what: str, thread: int, **args: Any) -> dict[str, Any]:
            return {"name": what, "ph": "M", "pid": PID, "tid": thread, "args": args}

        yield about("process_name", 0, name=f"ingot: {self.name}")
        for i in range(len(self.events.threads)):
            yield about("thread_name", i, name=f"thread {i}" + ("" if i else " (the caller's)"))
            yield about("thread_sort_index", i, sort_index=i)

    def _slices(self) -> Iterator[dict[str, Any]]:
        """By call and thread, in order of time; a call's slice surrounds those of its thread."""
        for n, (start, stop) in enumerate(self.events.calls):
            inside = [
                [e for e in thread if start <= e.start <= stop] for thread in self.events.threads
            ]
            done: Counter[int] = Counter()
            for event in (e for thread in inside for e in thread if not e.wait):
                done[event.launch] += event.high - event.low
            yield self._slice(f"call {n + 1}", "call", 0, start, stop, {})
            for i, thread in enumerate(inside):
                yield from (self._of_event(i, event, done[event.launch]) for event in thread)

    def _of_event(self, thread: int, event: Event, iterations: int) -> dict[str, Any]:
        row, ends = self.rows.get(event.launch), (event.start, event.stop)
        if event.wait or row is None:
            return self._slice("wait", "barrier", thread, *ends, {})
        return self._slice(
            slice_name(row), row.family or "sizes", thread, *ends,
            self._arguments(row, event, iterations),
        )  # fmt: skip

    def _arguments(self, row: LaunchRow, event: Event, iterations: int) -> dict[str, Any]:
        """Of a call of a kernel for some of the `iterations` that all threads did: its fraction of
        the launch's FLOPs and bytes is that of its iterations."""
        part = (event.high - event.low) / iterations if iterations else 0.0
        sizes = (row.flops, row.arg_bytes, row.parallel_extent)
        flops, moved, extent = (number(size, self.events.sizes) for size in sizes)
        found: dict[str, Any] = {
            "nodes": [node.layer for node in model_nodes(row.origin)],
            "kernel": row.kernel,
            "family": row.family,
            "iterations": f"{event.low} to {event.high} of {extent}",
            "lanes": row.lanes,
        }
        found |= {"tile": row.tile} if row.tile else {}
        found |= {"plan": row.plan} if row.plan else {}
        found |= {} if moved is None else {"bytes": round(moved * part)}
        if flops:
            time_us = (event.stop - event.start) * self.events.us_per_tick
            found |= {"flops": round(flops * part)}
            found |= {"GFLOP/s": round(flops * part / time_us / 1e3, 2)} if time_us else {}
        return found

    def _slice(
        self, name: str, category: str, thread: int, start: int, stop: int, args: dict[str, Any]
    ) -> dict[str, Any]:
        begin, end = self._time_us(start), self._time_us(stop)
        return {"name": name, "cat": category, "ph": "X", "ts": begin, "dur": round(end - begin, 3),
                "pid": PID, "tid": thread, "args": args}  # fmt: skip

    def _time_us(self, ticks: int) -> float:
        """Since the first call, in whole nanoseconds: rounding keeps the order of all times."""
        return round((ticks - self.events.calls[0][0]) * self.events.us_per_tick, 3)


def slice_name(row: LaunchRow) -> str:
    names = layer_names(row.origin) or row.kernel
    return names if len(names) <= NAME_LENGTH else names[: NAME_LENGTH - 1] + "…"

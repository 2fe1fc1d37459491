"""What `ingot bench` prints, and its JSON. In: the entries of a benchmark. Called by bench.py."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ingot.cli.output import print_table
from ingot.cli.peers.rounds import BenchOptions, Entry, best_peer
from ingot.cli.peers.runtimes import OURS, ROOFLINE_PROBES
from ingot.cli.peers.task import WORK_PER_CALL, Task

UNITS = {"fma": "GFLOP/s, f32 multiply-adds in registers", "bandwidth": "GB/s, memory reads"}
HEAD = ("runtime", "threads", "p50 ms", "p99 ms", "speedup vs best peer", "load s",
        "load s (cached)", "first call ms", "peak RSS MB", "error vs reference")  # fmt: skip


def speedup(entry: Entry, entries: Sequence[Entry]) -> float | None:
    """The best peer's time over its own, at the same thread count: above 1 it is faster."""
    best = best_peer([e for e in entries if e.threads == entry.threads])
    if best is None or best.time_ms is None or entry.time_ms is None:
        return None
    return best.time_ms / entry.time_ms


def as_data(
    task: Task, entries: Sequence[Entry], skipped: dict[str, str], options: BenchOptions
) -> dict[str, Any]:
    rows = [
        {
            **asdict(entry),
            "time_ms": entry.time_ms,
            "speedup_over_best_peer": speedup(entry, entries),
        }
        for entry in entries
        if not is_roofline_probe(entry)
    ]
    inputs = [
        {"name": n, "dtype": d, "shape": s} for n, d, s in zip(task.names, task.dtypes, task.shapes)
    ]
    return {"model": task.model, "inputs": inputs, "sizes": task.sizes, "dynamic": task.is_dynamic,
            "options": asdict(options), "entries": rows, "skipped": skipped,
            "roofline": [*map(machine_rate, filter(is_roofline_probe, entries))]}  # fmt: skip


def is_roofline_probe(entry: Entry) -> bool:
    return entry.runtime in ROOFLINE_PROBES


def machine_rate(entry: Entry) -> dict[str, Any]:
    """A roofline probe's rate: FLOP/s of multiply-adds, bytes/s of the memory reads."""
    rate = 1e3 * WORK_PER_CALL[entry.runtime] / entry.time_ms if entry.time_ms else None
    return {"name": entry.runtime, "threads": entry.threads, "failure": entry.failure,
            "rounds_ms": entry.rounds_ms, "per_second": rate}  # fmt: skip


def print_entries(
    task: Task, entries: Sequence[Entry], skipped: dict[str, str], options: BenchOptions
) -> None:
    shown = [
        f"{name}: {dtype}[{', '.join(map(str, shape))}]"
        for name, dtype, shape in zip(task.names, task.dtypes, task.shapes)
    ]
    sizes = "dynamic shapes" if task.is_dynamic else "static shapes"
    rounds = f"{options.rounds} round{'s' * (options.rounds > 1)}"
    click.echo(f"{Path(task.model).name} on {', '.join(shown)}, {sizes}; {rounds}\n")
    timed = [e for e in entries if not e.failure and not is_roofline_probe(e)]
    print_table(HEAD, [_cells(entry, entries) for entry in timed])
    click.echo()
    for entry in filter(is_roofline_probe, entries):
        rate = machine_rate(entry)["per_second"]
        if rate:
            click.echo(f"{rate / 1e9:.1f} {UNITS[entry.runtime]}, threads: {entry.threads}")
    for entry in entries:
        if entry.failure:
            click.echo(f"{entry.runtime}, {entry.threads} threads: failed: {entry.failure}")
    for name, why in skipped.items():
        click.echo(f"{name}: skipped: {why}")
    click.echo(_verdict(task, entries))


def _verdict(task: Task, entries: Sequence[Entry]) -> str:
    compared = [entry for entry in entries if entry.runtime == OURS and entry.agrees is not None]
    if not compared:
        return "No other runtime to compare Ingot's outputs with."
    worst = max(entry.distance or 0.0 for entry in compared)
    agrees = all(entry.agrees for entry in compared)
    verb = "match" if agrees else "DIFFER"
    line = f"Ingot's outputs {verb}: max|a-b|/max|b| = {worst:.1e}"
    return line if agrees else f"{line}\nto find the node and the stage: {verify_line(task)}"


def verify_line(task: Task) -> str:
    """The command that looks into it, for the same sizes."""
    sizes = {} if task.is_dynamic else task.sizes
    words = ["ingot", "verify", task.model, *(f"--shape={n}={size}" for n, size in sizes.items())]
    return shlex.join(words)


def _cells(entry: Entry, entries: Sequence[Entry]) -> tuple[str, ...]:
    ratio = speedup(entry, entries)
    error = f"{entry.distance or 0:.0e}"
    agreement = {None: "-", True: error, False: f"DIFFERS {error}"}
    return (
        f"{entry.runtime} {entry.version}",
        str(entry.threads),
        _short(entry.time_ms),
        _short(entry.p99_ms),
        "-" if ratio is None else f"{ratio:.2f}",
        _short(entry.load_s),
        _short(entry.cached_s),
        _short(None if entry.first_s is None else 1e3 * entry.first_s),
        "-" if entry.peak_bytes is None else f"{entry.peak_bytes / 1e6:.0f}",
        agreement[entry.agrees],
    )


def _short(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.3f}" if figure < 10 else f"{figure:.1f}"

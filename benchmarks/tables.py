"""The tables of peers.py. In: results. Out: Markdown, and pages of the docs filled in.

A row is a model at a thread count. `SPEEDUP` is the best peer's time over Ingot's: above 1, Ingot
is faster. `roofline` is the least time over the measured time. The least time is that of the
model's useful FLOPs at the rate of Ingot's own GEMM, or that of reading its weights at memory
bandwidth, whichever is longer, both measured in the same minutes on as many threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OURS, PEERS = "ingot", ("onnxruntime", "openvino", "torch")
SPEEDUP = "speedup_over_best_peer"
HEAD = ("model", "threads", "Ingot ms", "ONNX Runtime ms", "OpenVINO ms", "torch ms",
        "speedup vs best peer", "GFLOP", "of roofline", "error vs float64",
        "error / ONNX Runtime's", "compile s", "load s (cached)", "peak RSS MB",
        "error vs reference")  # fmt: skip
SHORT = ("model", "threads", "Ingot ms", "best peer ms", "speedup vs best peer")
BOUNDS = {"gemm": "GEMM", "bandwidth": "bandwidth"}  # names of the roofline probes in the table
PAGES = {"docs/performance.md": "full", "README.md": "short"}

Row = dict[str, Any]


def rows(result: dict[str, Any]) -> list[Row]:
    """One row for each thread count."""
    by_threads: dict[int, Row] = {}
    for entry in result.get("entries", ()):
        row = by_threads.setdefault(
            entry["threads"], {"model": result["name"], "threads": entry["threads"]}
        )
        row[entry["runtime"]] = entry
    if not by_threads:
        error = result.get("error", {}).get("code", f"exit code {result['exit_code']}")
        return [{"model": f"{result['name']} ({error})", "threads": "-"}]
    for row in by_threads.values():
        row["flops"] = result.get("facts", {}).get("useful_flops")
        row["roofline"] = roofline(result, row["threads"], row.get(OURS, {}).get("time_ms"))
    return list(by_threads.values())


def roofline(
    result: dict[str, Any], threads: int, time_ms: float | None
) -> tuple[float, str] | None:
    """The fraction of the roofline that Ingot reaches, and the probe that bounds the model."""
    rates = {y["name"]: y["per_second"] for y in result.get("roofline", ())
             if y["threads"] == threads and y["per_second"]}  # fmt: skip
    facts = result.get("facts", {})
    work = {"gemm": facts.get("useful_flops"), "bandwidth": facts.get("weights_bytes")}
    least_s = [(work[name] / rate, name) for name, rate in rates.items() if work[name]]
    if not least_s or not time_ms:
        return None
    seconds, name = max(least_s)
    return 1e3 * seconds / time_ms, name


def full_cells(row: Row) -> tuple[str, ...]:
    ours = row.get(OURS, {})
    times = [_time(row.get(name, {})) for name in (OURS, *PEERS)]
    flops, fraction = row.get("flops"), row.get("roofline")
    return (
        row["model"],
        str(row["threads"]),
        *times,
        figure(ours.get(SPEEDUP), ".2f"),
        figure(None if flops is None else flops / 1e9, ".3g"),
        f"{100 * fraction[0]:.0f} % of {BOUNDS[fraction[1]]}" if fraction else "-",
        figure(ours.get("error"), ".0e"),
        figure(_error_ratio(row), ".1f"),
        figure(ours.get("load_s"), ".1f"),
        figure(ours.get("cached_s"), ".2f"),
        figure((ours.get("peak_bytes") or 0) / 1e6 or None, ".0f"),
        _agreement(ours),
    )


def short_cells(row: Row) -> tuple[str, ...]:
    ours = row.get(OURS, {})
    peers = [e for name in PEERS if (e := row.get(name, {})).get("time_ms")]
    best = min(peers, key=lambda entry: entry["time_ms"], default={})
    peer = f"{_time(best)} ({best['runtime']})" if best else "-"
    return row["model"], str(row["threads"]), _time(ours), peer, figure(ours.get(SPEEDUP), ".2f")


def _error_ratio(row: Row) -> float | None:
    """Ingot's error from the float64 outputs over ONNX Runtime's."""
    ours, theirs = (row.get(name, {}).get("error") for name in (OURS, "onnxruntime"))
    return ours / theirs if ours is not None and theirs else None


def _time(entry: Row) -> str:
    if entry.get("failure"):
        return "failed"
    time_ms = entry.get("time_ms")
    return figure(time_ms, ".1f" if time_ms and time_ms >= 10 else ".3f")


def _agreement(entry: Row) -> str:
    if entry.get("agrees") is None:
        return "-"
    return ("" if entry["agrees"] else "DIFFERS ") + figure(entry.get("distance"), ".0e")


def figure(value: float | None, spec: str) -> str:
    return "-" if value is None else format(value, spec)


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def mean_line(found: Iterable[Row]) -> str:
    """The geometric mean speedup over the best peer for each thread count: of all models, and of
    those of a millisecond or more, where call overhead does not count."""
    by_threads: dict[int, list[Row]] = {}
    for row in found:
        if row.get(OURS, {}).get(SPEEDUP):
            by_threads.setdefault(row["threads"], []).append(row[OURS])
    means = [
        f"{_mean(rows)} with {threads} thread{'s' * (threads > 1)}"
        f" ({_mean(row for row in rows if row['time_ms'] >= 1)} for models of 1 ms or more)"
        for threads, rows in sorted(by_threads.items())
    ]
    return "Geometric mean speedup over the best peer: " + (", ".join(means) or "-") + "."


def _mean(rows: Iterable[Row]) -> str:
    speedups = [row[SPEEDUP] for row in rows]
    return f"{geometric_mean(speedups):.2f}" if speedups else "-"


def markdown(head: tuple[str, ...], cells: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def tables(results: dict[str, Any]) -> dict[str, str]:
    found = [row for result in results["models"] for row in rows(result)]
    versions = {
        entry["runtime"]: entry["version"]
        for result in results["models"]
        for entry in result.get("entries", ())
        if entry["version"]
    }
    about = f"{results['machine']}; " + ", ".join(f"{n} {v}" for n, v in versions.items()) + "."
    last = f"{mean_line(found)}\n\n{about}"
    return {
        "full": markdown(HEAD, map(full_cells, found)) + f"\n\n{last}",
        "short": markdown(SHORT, map(short_cells, found)) + f"\n\n{mean_line(found)}",
    }


def fill(text: str, name: str, table: str) -> str:
    """The page with the table between its `bench` comments replaced."""
    begin, end = f"<!-- bench: {name} -->", "<!-- bench: end -->"
    head, _, rest = text.partition(begin)
    _, found, tail = rest.partition(end)
    if not found:
        raise SystemExit(f"no {begin} … {end} on the page")
    return f"{head}{begin}\n{table}\n{end}{tail}"


def fill_pages(results: dict[str, Any]) -> None:
    made = tables(results)
    for page, name in PAGES.items():
        path = ROOT / page
        path.write_text(fill(path.read_text(encoding="utf-8"), name, made[name]), encoding="utf-8")
        print(f"{page} filled")

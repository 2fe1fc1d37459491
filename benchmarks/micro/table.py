"""Results of a micro-benchmark as text: a row for each case, then a summary.

The speedup is the best peer's time over Ingot's: above 1, Ingot is faster. In: results. Out: lines,
and the same as data for JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.micro.rounds import Implementation, Result
from benchmarks.rows import geometric_mean
from benchmarks.tables import figure
from ingot.support.text import columns

LIMITS = (0.95, 0.85)  # speedups below which the summary counts cases
WORST = 5  # cases that the summary names
NAME_WIDTH, CELL_WIDTH = 36, 12


def best_peer(result: Result, impls: Sequence[Implementation]) -> tuple[str, float] | None:
    times = result.time_ms
    peers = [(w.label, times[w.label]) for w in impls if not w.is_ours and w.label in times]
    return min(peers, key=lambda peer: peer[1], default=None)


def ratio(result: Result, label: str, impls: Sequence[Implementation]) -> float | None:
    """The speedup: the best peer's time over this one's."""
    best, own = best_peer(result, impls), result.time_ms.get(label)
    return best[1] / own if best is not None and own else None


def head(impls: Sequence[Implementation]) -> tuple[str, ...]:
    ours = [impl.label for impl in impls if impl.is_ours]
    return ("case", "kind", "threads", *(f"{impl.label} ms" for impl in impls),
            *(f"speedup {label}" for label in ours), "GFLOP/s", "max error")  # fmt: skip


def cells(result: Result, impls: Sequence[Implementation]) -> tuple[str, ...]:
    ours = [impl.label for impl in impls if impl.is_ours]
    own_ms = result.time_ms.get(ours[0])
    rate = result.case.flops / own_ms / 1e6 if own_ms and result.case.flops else None
    return (
        result.case.name,
        result.case.kind,
        str(result.threads),
        *("failed" if e.failure else figure(e.time_ms, ".4f") for e in result.entries),
        *(figure(ratio(result, label, impls), ".2f") for label in ours),
        figure(rate, ".1f"),
        _agreement(result),
    )


def _agreement(result: Result) -> str:
    compared = [e for e in result.entries if e.distance is not None]
    worst = max((e.distance or 0.0 for e in compared), default=0.0)
    return ("" if all(e.agrees for e in compared) else "DIFFERS ") + f"{worst:.0e}"


def line(row: Sequence[str]) -> str:
    """A row of fixed width, since rows are printed one by one as they are measured."""
    return row[0].ljust(NAME_WIDTH) + "".join(f"  {cell:>{CELL_WIDTH}}" for cell in row[1:])


def summaries(
    results: Sequence[Result], impls: Sequence[Implementation]
) -> Iterator[dict[str, Any]]:
    """For each of Ingot's columns, thread count and kind: mean speedup, worst and slow cases."""
    for impl in (impl for impl in impls if impl.is_ours):
        for threads in sorted({r.threads for r in results}):
            own = [r for r in results if r.threads == threads]
            kinds = list(dict.fromkeys(r.case.kind for r in own))
            for kind in ["all", *kinds] if len(kinds) > 1 else ["all"]:
                some = [r for r in own if kind in ("all", r.case.kind)]
                found = [(x, r.case.name) for r in some if (x := ratio(r, impl.label, impls))]
                if found:
                    yield _summary(impl.label, threads, kind, sorted(found))


def _summary(
    label: str, threads: int, kind: str, found: Sequence[tuple[float, str]]
) -> dict[str, Any]:
    return {
        "column": label,
        "threads": threads,
        "kind": kind,
        "cases": len(found),
        "geometric_mean": geometric_mean([x for x, _ in found]),
        "below": {str(limit): sum(x < limit for x, _ in found) for limit in LIMITS},
        "worst": [{"case": name, "speedup_over_best_peer": x} for x, name in found[:WORST]],
    }


def summary_lines(found: Sequence[dict[str, Any]]) -> list[str]:
    """The summaries as lines, and the worst cases of each column."""
    head = ("column", "threads", "kind", "cases", "geomean speedup",
            *(f"below {limit}" for limit in LIMITS), "minimum")  # fmt: skip
    rows = [
        (s["column"], str(s["threads"]), s["kind"], str(s["cases"]), f"{s['geometric_mean']:.2f}",
         *(str(n) for n in s["below"].values()), f"{s['worst'][0]['speedup_over_best_peer']:.2f}")
        for s in found
    ]  # fmt: skip
    worst = [
        f"worst of {s['column']}, threads: {s['threads']}: "
        + ", ".join(f"{w['case']} {w['speedup_over_best_peer']:.2f}" for w in s["worst"])
        for s in found
        if s["kind"] == "all"
    ]
    return [*columns([head, *rows]), "", *worst]


def as_data(results: Sequence[Result], impls: Sequence[Implementation]) -> list[dict[str, Any]]:
    return [
        {
            "case": r.case.name,
            "kind": r.case.kind,
            "threads": r.threads,
            "flops": r.case.flops,
            "speedup_over_best_peer": {
                impl.label: ratio(r, impl.label, impls) for impl in impls if impl.is_ours
            },
            "entries": [
                {"runtime": e.runtime, "version": e.version, "failure": e.failure,
                 "rounds_ms": e.rounds_ms, "time_ms": e.time_ms, "distance": e.distance}
                for e in r.entries
            ],
        }
        for r in results
    ]  # fmt: skip

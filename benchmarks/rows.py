"""Results of `ingot bench` → rows of the tables. In: the JSON of a model. Out: for each runtime its
fastest entry over all thread counts, and the figures that compare them.

`speedup` is the best peer's time over Ingot's, each at its best number of threads: above 1, Ingot
is faster. `roofline` is the least time over the measured time. The least time is that of the
model's useful FLOPs at the machine's peak multiply-add rate, or that of reading its weights at
memory bandwidth, whichever is longer, both measured in the same minutes on as many threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ingot.cli.peers import runtimes
from ingot.cli.peers.runtimes import OURS, TORCH

PEERS = ("onnxruntime", "openvino", "torch")  # columns; torch is the fastest of its variants
BOUNDS = {"fma": "FMA", "bandwidth": "bandwidth"}  # names of the roofline probes in the table

Entry = dict[str, Any]
Row = dict[str, Any]


def row(result: dict[str, Any]) -> Row:
    """`best`: the fastest entry of each runtime; `error`: why there are none."""
    entries = result.get("entries", ())
    names = dict.fromkeys(entry["runtime"] for entry in entries)
    best = {name: fastest(e for e in entries if e["runtime"] == name) for name in names}
    torch = [best[name] for name in TORCH if name in best]
    made: Row = {"model": result["name"], "best": best, "entries": entries}
    if torch:
        best["torch"] = fastest(torch)
    if OURS not in best:
        made["error"] = result.get("error", {}).get("code", f"exit code {result.get('exit_code')}")
        return made
    made["speedup"] = speedup(best, OURS)
    made["noise"] = against(made, runtimes.AGAIN)
    made["flops"] = result.get("facts", {}).get("useful_flops")
    made["roofline"] = roofline(result, best[OURS]["threads"], best[OURS].get("time_ms"))
    return made


def fastest(entries: Iterable[Entry]) -> Entry:
    """The fastest; one that failed if all did."""
    return min(entries, key=lambda entry: entry.get("time_ms") or math.inf)


def best_peer(best: dict[str, Entry]) -> Entry | None:
    timed = [e for name, e in best.items() if runtimes.is_peer(name) and e.get("time_ms")]
    return fastest(timed) if timed else None


def speedup(best: dict[str, Entry], name: str) -> float | None:
    peer, ours = best_peer(best), best.get(name, {}).get("time_ms")
    return peer["time_ms"] / ours if peer and ours else None


def against(row: Row, name: str) -> float | None:
    """Another build's time over Ingot's, on as many threads."""
    ours = row["best"][OURS]
    other = [e for e in row["entries"] if (e["runtime"], e["threads"]) == (name, ours["threads"])]
    time_ms = other[0].get("time_ms") if other else None
    return time_ms / ours["time_ms"] if time_ms and ours.get("time_ms") else None


def roofline(
    result: dict[str, Any], threads: int, time_ms: float | None
) -> tuple[float, str] | None:
    """The fraction of the roofline that Ingot reaches, and the probe that bounds the model."""
    rates = {y["name"]: y["per_second"] for y in result.get("roofline", ())
             if y["threads"] == threads and y["per_second"]}  # fmt: skip
    facts = result.get("facts", {})
    work = {"fma": facts.get("useful_flops"), "bandwidth": facts.get("weights_bytes")}
    least_s = [(work[name] / rate, name) for name, rate in rates.items() if work[name]]
    if not least_s or not time_ms:
        return None
    seconds, name = max(least_s)
    return 1e3 * seconds / time_ms, name


def error_ratio(row: Row) -> float | None:
    """Ingot's error from the float64 outputs over ONNX Runtime's."""
    ours, theirs = (row["best"].get(name, {}).get("error") for name in (OURS, "onnxruntime"))
    return ours / theirs if ours is not None and theirs else None


def failures(rows: Iterable[Row]) -> list[str]:
    """Why a runtime has no figure, a line for each runtime and reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for each in rows:
        for name, entry in each["best"].items():
            if entry.get("failure") and name != "torch":
                first = entry["failure"].strip().splitlines()[0]
                models = found.setdefault((name, first), [])
                models += [each["model"]] if each["model"] not in models else []
    return [f"{name} failed on {', '.join(models)}: {why}" for (name, why), models in found.items()]


# --- means ----------------------------------------------------------------------------------------


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def mean_line(rows: Iterable[Row]) -> str:
    """The geometric mean speedup of models of a millisecond or more, where call overhead does not
    count, with the lowest and the highest; then that of all models."""
    timed = [each for each in rows if each.get("speedup")]
    long = [each for each in timed if each["best"][OURS]["time_ms"] >= 1]
    return (
        f"Geometric mean speedup over the best peer, models of 1 ms or more: {_spread(long)}. "
        f"All models: {_spread(timed)}."
    )


def _spread(rows: Sequence[Row]) -> str:
    if not rows:
        return "-"
    low, high = (
        choose(rows, key=lambda each: each["speedup"])
        for choose in (min, max)  # type: ignore[operator]
    )
    mean = geometric_mean([each["speedup"] for each in rows])
    return (
        f"{mean:.2f} ({low['speedup']:.2f} {low['model']} to {high['speedup']:.2f} "
        f"{high['model']}; {len(rows)} rows)"
    )


def noise_line(rows: Iterable[Row]) -> str:
    """What two processes with the same build differ by."""
    found = [(each["noise"], each["model"]) for each in rows if each.get("noise")]
    if not found:
        return "No build was timed against itself."
    far, model = max(found, key=lambda pair: abs(math.log(pair[0])))
    middle = sorted(abs(math.log(ratio)) for ratio, _ in found)[len(found) // 2]
    return (
        f"The same build against itself: {100 * math.expm1(middle):.0f} % apart in the median, "
        f"{far:.2f} at most ({model})."
    )

"""What the layers of a quantised model run as, and where the time goes.

    python -m benchmarks.quantised.layers mobilenet_v2     a summary, and the slowest kernels
    python -m benchmarks.quantised.layers bert_base --all --target x86-64-v3 --threads 2

In: models of models.py. Out: for each way of computing, its launches and its share of the time, and
the contractions that stayed in float with their reasons; a line for each slow launch. Times are the
least of several profiles, since a shared machine makes some of them too long.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import ingot
from benchmarks.quantised import models
from ingot import api, pipeline
from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.support.text import columns

PROFILES, RUNS = 12, 3
SLOWEST = 15  # launches that are listed without --all
DOT, WIDENED, LANES = "integer dot products", "integers, widened", "8-bit values in f32 lanes"
FLOAT, MOVES = "float contraction", "8-bit to 8-bit, element by element"
TO_8, FROM_8, PLAIN = "float to 8 bits", "8 bits to float", "float, element by element"


@dataclass(frozen=True)
class Layer:
    kernel: str
    origin: str
    runs_as: str
    why: str
    time_us: float
    plan: str


def layers(case: models.Case, target: str, threads: int) -> list[Layer]:
    """A row for each launch, in order."""
    exe = ingot.compile(case.int8, target=target, threads=threads, profile=True)
    feeds = case.feeds()
    profiles = [exe.profile(feeds, runs=RUNS).rows for _ in range(PROFILES)]
    reports = {row.kernel: row for row in exe.package.report}
    kinds, found = kinds_of(case, target), []
    for row, *others in zip(*profiles):
        time_us = min(x.time_us for x in (row, *others))
        kind, report = kinds.get(row.kernel, PLAIN), reports[row.kernel]
        found.append(Layer(row.kernel, row.origin, kind, report.why_float, time_us, report.plan))
    return found


def kinds_of(case: models.Case, target: str) -> dict[str, str]:
    """Kernel → how it computes, from its plan and the types of its blocks."""
    program = pipeline.run_stages(case.int8, api.make_session(target), stop_after="split_kernels")
    return {name: kind_of(kernel) for name, kernel in program.kernels}


def kind_of(kernel: ir.Kernel) -> str:
    """A group's plan is on each of its loop nests: one that sums nothing is element-wise."""
    statements = list(visit.walk_stmts(kernel.body))
    sums = [b for b in visit.blocks(kernel.body) if _sums(b)] if kernel.plans else []
    if any(isinstance(s, ir.Call) for s in statements):
        return DOT
    if not sums:
        return _element_wise(kernel)
    stored = {s.buffer.dtype for block in sums for s in visit.stores(block)}
    if all(dtype.is_int for dtype in stored):
        return WIDENED
    operands = {x.buffer.dtype for block in sums for x in visit.loads(block)} - stored
    return LANES if any(dtype.is_int for dtype in operands) else FLOAT


def _sums(block: ir.Block) -> bool:
    return any(axis.kind is ir.AxisKind.REDUCE for axis in block.axes)


def _element_wise(kernel: ir.Kernel) -> str:
    written = {s.buffer.name for s in visit.stores(kernel.body)}
    large = [b for b in kernel.params if _elements(b) > 1]
    outputs = [b.dtype.is_float for b in large if b.name in written]
    most = max((_elements(b) for b in large), default=0)
    inputs = [b.dtype.is_float for b in large if b.name not in written and 4 * _elements(b) >= most]
    match any(inputs), any(outputs):
        case False, False:
            return MOVES
        case True, False:
            return TO_8
        case False, True:
            return FROM_8
    return PLAIN


def _elements(buffer: ir.Buffer) -> int:
    total = 1
    for size in buffer.shape:
        total *= arith.as_int(size) or 1
    return total


def summary(found: Sequence[Layer]) -> list[str]:
    """Launches and time of each way of computing, the longest first."""
    total = sum(layer.time_us for layer in found)
    kinds = {layer.runs_as for layer in found}
    rows = []
    for kind in kinds:
        times = [layer.time_us for layer in found if layer.runs_as == kind]
        rows.append((sum(times), kind, len(times)))
    shown = [
        (kind, str(count), f"{time_us:.0f}", f"{100 * time_us / total:.0f} %")
        for time_us, kind, count in sorted(rows, reverse=True)
    ]
    reasons = sorted({layer.why for layer in found if layer.why})
    counts = {why: sum(layer.why == why for layer in found) for why in reasons}
    return [
        *columns([("runs as", "launches", "µs", "of the time"), *shown]),
        *(f"in float, {count} launches: {why}" for why, count in counts.items()),
    ]


def slowest(found: Sequence[Layer], count: int) -> list[str]:
    chosen = sorted(found, key=lambda layer: -layer.time_us)[:count]
    rows = [
        (f"{x.time_us:.0f}", x.runs_as, x.kernel, _nodes_only(x.origin)[:60], x.plan[:90])
        for x in chosen
    ]
    return columns([("µs", "runs as", "kernel", "nodes", "plan"), *rows])


def _nodes_only(origin: str) -> str:
    return " ".join(part.split("'")[1] for part in origin.split(";") if "'" in part)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantised.layers")
    parser.add_argument("names", nargs="+", metavar="MODEL", choices=[*models.MODELS])
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="list every launch, not the slowest")
    given = parser.parse_args()
    for name in given.names:
        found = layers(models.make(name), given.target, given.threads)
        total = sum(layer.time_us for layer in found) / 1e3
        print(f"{name}, {given.target}, threads: {given.threads}: {total:.2f} ms in kernels")
        print("\n".join(summary(found)))
        print("\n".join(slowest(found, len(found) if given.all else SLOWEST)), flush=True)


if __name__ == "__main__":
    main()

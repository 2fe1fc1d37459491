"""Compile models of the zoo and compare them with ONNX Runtime:  python -m benchmarks.zoo.compare

Each model is compiled in a process of its own, with dynamic shapes (one build for all sizes) and
with static shapes (a build for each tuple of sizes); --mode selects one of these. All outputs are
compared on one thread and on two. A model's line has the largest difference relative to the largest
value; more than 1e-4 is a failure, and so is an error. --table prints the table of docs/models.md.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.zoo import TABLE, Entry, Feeds, path_of

TOLERANCE = 1e-4
MIN_SPREAD = 1e-6  # largest minus smallest output: a constant output proves nothing
TIME_LIMIT_S = 1800


@dataclass
class Result:
    """The result of one model with dynamic or static shapes."""

    name: str
    mode: str  # "dynamic" or "static"
    parameters: int = 0
    sizes: list[str] = field(default_factory=list)
    difference: float = 0.0
    compile_s: float = 0.0  # CPU time of this process, without LLVM's worker processes
    stages_s: dict[str, float] = field(default_factory=dict)
    peak_mb: int = 0
    error: str = ""

    @property
    def agrees(self) -> bool:
        return not self.error and self.difference <= TOLERANCE


def weights_bytes(path: Path) -> int:
    return path.stat().st_size


def compare(entry: Entry, mode: str, folder: Path | None = None) -> Result:
    """Compile in this process and compare, at all of the entry's sizes."""
    import onnx

    import ingot
    from ingot.support.dump import Dump

    path = path_of(entry, folder)
    result = Result(entry.name, mode)
    proto = onnx.load(path)
    result.parameters = sum(int(np.prod(t.dims)) for t in proto.graph.initializer)
    del proto
    exe: Any = None
    for sizes in entry.sizes:
        if exe is None or mode == "static":
            dump, start = Dump(), time.process_time()
            exe = ingot.compile(
                path, shapes=entry.shapes(sizes) if mode == "static" else None, dump=dump
            )
            if not result.compile_s:
                result.compile_s = time.process_time() - start
                result.stages_s = {n: round(t, 2) for n, t in dump.times_s.items()}
                result.peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        feeds = entry.feeds(sizes)
        result.difference = max(result.difference, largest_difference(exe, path, feeds))
        result.sizes.append(" ".join(f"{n}={s}" for n, s in sizes.items()))
    return result


def largest_difference(exe: Any, path: Path, feeds: Feeds) -> float:
    """max|a − b| / max|b| over outputs and thread counts; infinite if types or shapes differ."""
    names, want = onnxruntime_outputs(path, feeds)
    if not any(np.ptp(b.astype(np.float64)) > MIN_SPREAD for b in want if b.size):
        raise ValueError("its outputs are constant: comparing them would prove nothing")
    worst = 0.0
    for threads in (1, 2):
        exe.threads = threads
        for a, b in zip(exe.run(names, feeds), want, strict=True):
            worst = max(worst, relative(a, b))
    return worst


def onnxruntime_outputs(path: Path, feeds: Feeds) -> tuple[list[str], list[np.ndarray]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return names, session.run(names, feeds)


def relative(a: np.ndarray, b: np.ndarray) -> float:
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if b.dtype.kind != "f":
        return 0.0 if np.array_equal(a, b) else float("inf")
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    finite = np.isfinite(b)
    scale = float(np.abs(b[finite]).max(initial=0.0))
    gap = float(np.abs(a[finite].astype(np.float64) - b[finite]).max(initial=0.0))
    return gap / scale if scale else gap


# --- the command --------------------------------------------------------------------------------


def compare_in_process(name: str, mode: str, folder: Path | None) -> Result:
    """The same in a process of its own, which isolates its memory and its errors."""
    command = [sys.executable, "-m", "benchmarks.zoo.compare", "--here", name, "--mode", mode]
    command += ["--folder", str(folder)] if folder else []
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIME_LIMIT_S, env=_without_cache()
        )
    except subprocess.TimeoutExpired:
        return Result(name, mode, error=f"not done after {TIME_LIMIT_S} s")
    last = done.stdout.strip().splitlines()[-1:] or [""]
    if done.returncode or not last[0].startswith("{"):
        text = (done.stderr or done.stdout).strip().splitlines()
        return Result(name, mode, error="\n".join(text[-6:]) or f"exit code {done.returncode}")
    return Result(**json.loads(last[0]))


def _without_cache() -> dict[str, str]:
    """Without the cache, so that the result and the compile time are those of this source tree."""
    return {**os.environ, "INGOT_CACHE_DIR": "off"}


def line(r: Result) -> str:
    if r.error:
        return f"{r.name:22} {r.mode:6} {r.error}"
    slow = sorted(r.stages_s.items(), key=lambda item: -item[1])[:3]
    stages = " ".join(f"{name} {seconds:.1f}" for name, seconds in slow)
    return (
        f"{r.name:22} {r.mode:6} {r.difference:8.1e} {'agrees' if r.agrees else 'DIFFERS'}  "
        f"{r.compile_s:6.1f} s ({stages}) {r.peak_mb:6} MB"
    )


def table(results: list[Result]) -> str:
    """The table of docs/models.md: one row per model, the worse of its two modes."""
    rows = ["| model | parameters | sizes tried | largest difference |", "|---|---|---|---|"]
    for name in dict.fromkeys(r.name for r in results):
        mine = [r for r in results if r.name == name]
        bad = [r for r in mine if not r.agrees]
        sizes = "; ".join(dict.fromkeys(s for r in mine for s in r.sizes if s)) or "as in the file"
        worst = max(r.difference for r in mine)
        cell = f"{worst:.1e}" if not bad else f"{', '.join(r.mode for r in bad)}: fails"
        million = max(r.parameters for r in mine) / 1e6
        rows.append(f"| {name} | {million:.1f} M | {sizes} | {cell} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo.compare")
    parser.add_argument("names", nargs="*", metavar="NAME", help="models; none: all")
    parser.add_argument("--folder", type=Path, help="folder of the model files")
    parser.add_argument("--mode", choices=("dynamic", "static", "both"), default="both")
    parser.add_argument("--table", action="store_true", help="print the table of docs/models.md")
    parser.add_argument("--here", metavar="NAME", help="compare one in this process, print JSON")
    options = parser.parse_args()
    if options.here:
        print(json.dumps(asdict(compare(TABLE[options.here], options.mode, options.folder))))
        return
    results = []
    for name in options.names or TABLE:
        is_dynamic = any(TABLE[name].sizes[0])
        modes = ("dynamic", "static") if options.mode == "both" and is_dynamic else (options.mode,)
        for mode in modes:
            mode = "static" if mode == "both" else mode
            results.append(compare_in_process(name, mode, options.folder))
            print(line(results[-1]), flush=True)
    if options.table:
        print(table(results))
    sys.exit(0 if all(r.agrees for r in results) else 1)


if __name__ == "__main__":
    main()

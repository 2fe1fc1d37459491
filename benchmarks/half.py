"""f16 and bf16, stored narrow:  python -m benchmarks.half [--threads 1,2] [--rounds 5]

Three tables. GEMV and small GEMMs with constant weights in f32, f16 and bf16, and a GEMM by bf16
dot products; a decoding step of GPT-2 and of a larger decoder in f32, with weights that are bf16
numbers, and wholly in bf16 and f16; vision models converted to f16, versus ONNX Runtime in a
process of its own on the same file (`ingot bench`). Within one table the variants take turns, and
the median of the rounds is shown; a round is the fastest of its calls.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import ingot
from benchmarks import half_models
from benchmarks.weight_only_models import Decoder
from benchmarks.zoo import TABLE, path_of, zoo_folder
from ingot.support.text import columns

ROOT = Path(__file__).parents[1]
GEMMS = ((1, 4096, 8192), (1, 4096, 14336), (4, 4096, 8192), (128, 2048, 2048))
DECODER = "gpt2_decode"
LARGE = Decoder(layers=4)  # 1.2 GB of weights in f32: more than caches hold
FOLDER = ROOT / "build" / "half"
VARIANTS = (  # name, numbers that the weights are, element type
    ("f32", "f32", "f32"), ("f32, weights bf16", "bf16", "f32"), ("bf16", "bf16", "bf16"),
    ("f16", "f16", "f16"),
)  # fmt: skip
VISION = ("resnet50", "mobilenet_v2", "efficientnet_b0")
ROUND_S = 0.3
DOTS = {"bf16_dots": True}
Rows = list[tuple[str, ...]]


def rounds(calls: Mapping[str, Callable[[], Any]], count: int) -> dict[str, float]:
    """The median over the rounds of the fastest call of each, in ms."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(count):
        for name, call in calls.items():
            found[name].append(_fastest(call))
    return {name: 1e3 * statistics.median(times) for name, times in found.items()}


def _fastest(call: Callable[[], Any]) -> float:
    best, end = float("inf"), time.perf_counter() + ROUND_S
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def gemms(threads: int, count: int) -> Rows:
    rows: Rows = [("rows x K x N", "type", "ms", "GB/s of weights", "f32 / this")]
    for shape in GEMMS:
        calls = {}
        for name, options in (("f32", {}), ("f16", {}), ("bf16", {}), ("bf16 dots", DOTS)):
            model, x = half_models.gemm(name.split()[0], *shape)
            exe = ingot.compile(model, threads=threads, options=options)
            calls[name] = _bound(exe, {"x": x})
        times = rounds(calls, count)
        for name, ms in times.items():
            size = shape[1] * shape[2] * (4 if name == "f32" else 2)
            rate, ratio = size / ms / 1e6, times["f32"] / ms
            label = "x".join(map(str, shape))
            rows.append((label, name, f"{ms:.3f}", f"{rate:.1f}", f"{ratio:.2f}"))
    return rows


def _bound(exe: ingot.Executable, feeds: Mapping[str, np.ndarray]) -> Callable[[], Any]:
    return lambda: exe.run(None, feeds)


def decoding(threads: int, count: int) -> Rows:
    """One token after a cache of others: GPT-2, and a decoder whose weights exceed the caches."""
    entry = TABLE[DECODER]
    sizes = entry.sizes[0]
    model, feeds = onnx.load(path_of(entry)), entry.feeds(sizes)
    rows: Rows = [("model", "type", "ms", "weights MiB", "f32 / this")]
    rows += _decoded(DECODER, model, feeds, threads, count, entry.shapes(sizes))
    model, feeds = half_models.decoding(FOLDER, LARGE)
    return rows + _decoded(f"decoder, {LARGE.layers} layers", model, feeds, threads, count)


def _decoded(
    title: str,
    model: onnx.ModelProto,
    feeds: Mapping[str, np.ndarray],
    threads: int,
    count: int,
    shapes: Mapping[str, int] | None = None,
) -> Rows:
    calls, weights = {}, {}
    for name, narrow, dtype in VARIANTS:
        made = half_models.rounded(model, narrow) if dtype == "f32" != narrow else model
        made = half_models.converted(made, dtype) if dtype != "f32" else made
        exe = ingot.compile(made, threads=threads, shapes=shapes)
        calls[name] = _bound(exe, _as(feeds, dtype))
        weights[name] = exe.memory["weights"] >> 20
    times = rounds(calls, count)
    return [
        (title, name, f"{ms:.2f}", str(weights[name]), f"{times['f32'] / ms:.2f}")
        for name, ms in times.items()
    ]


def _as(feeds: Mapping[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    dtype = half_models.NARROW[name][1]
    return {n: a.astype(dtype) if a.dtype == np.float32 else a for n, a in feeds.items()}


def vision(threads: int, count: int) -> Rows:
    rows: Rows = [("f16 model", "ingot ms", "onnxruntime ms", "speedup", "difference")]
    for name in VISION:
        file = zoo_folder() / f"{name}-f16.onnx"
        if not file.exists():
            onnx.save(half_models.converted(onnx.load(path_of(TABLE[name])), "f16"), file)
        rows.append((name, *_versus_onnxruntime(file, threads, count)))
    return rows


def _versus_onnxruntime(file: Path, threads: int, count: int) -> tuple[str, ...]:
    words = ["bench", str(file), "--json", "--peers", "onnxruntime", "--tolerance", "0.05"]
    words += ["--threads", str(threads), "--rounds", str(count)]
    command = [sys.executable, "-m", "ingot.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    entries = {e["runtime"]: e for e in json.loads(done.stdout)["entries"]}
    ours, theirs = entries["ingot"], entries["onnxruntime"]
    return (
        f"{ours['time_ms']:.2f}", f"{theirs['time_ms']:.2f}",
        f"{theirs['time_ms'] / ours['time_ms']:.2f}", f"{ours['distance']:.0e}",
    )  # fmt: skip


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.half", description=__doc__)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tables", default="gemms,decoding,vision")
    given = parser.parse_args(words)
    tables = {"gemms": gemms, "decoding": decoding, "vision": vision}
    for threads in map(int, given.threads.split(",")):
        for name in given.tables.split(","):
            print(f"\n{name}, threads: {threads}")
            print("\n".join(columns(tables[name](threads, given.rounds))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

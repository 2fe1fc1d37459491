"""STFT, DFT, TopK, NonZero and Unique alone, versus ONNX Runtime:  python benchmarks/signal_ops.py

    python benchmarks/signal_ops.py                  all cases, one and two threads
    python benchmarks/signal_ops.py topk --rounds 9  those whose name contains a word
    python benchmarks/signal_ops.py --threads 1

Both run in turns in one process; a figure is the fastest call of all rounds, in µs. The ratio is
ONNX Runtime / Ingot: above 1, Ingot is faster. Outputs are compared first.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import ingot  # noqa: E402  # this file is run by its path
from ingot.support.text import columns  # noqa: E402

HEAD = ("operator", "threads", "Ingot µs", "ONNX Runtime µs", "ratio")
ROUND_S = 0.05  # of one executable in a round


@dataclass(frozen=True)
class Case:
    name: str
    model: onnx.ModelProto
    x: np.ndarray
    tolerance: float = 0.0  # of the largest output


def model(op: str, x: np.ndarray, operands: list[Any], outputs: int, **attrs: Any) -> Any:
    """One node; operands behind the first are constants, or absent."""
    names = ["x", *(f"c{i}" if v is not None else "" for i, v in enumerate(operands))]
    results = [f"y{i}" for i in range(outputs)]
    weights = [
        numpy_helper.from_array(np.asarray(v), f"c{i}")
        for i, v in enumerate(operands)
        if v is not None
    ]
    code = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node(op, names, results, **attrs)],
        op,
        [helper.make_tensor_value_info("x", code, x.shape)],
        [helper.make_empty_tensor_value_info(name) for name in results],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def cases() -> Iterator[Case]:
    rng = np.random.default_rng(0)
    for samples in (16000, 160000):
        x = rng.standard_normal((1, samples, 1)).astype(np.float32)
        for length, step in ((400, 160), (1024, 256)):
            window = np.hanning(length).astype(np.float32)
            stft = model("STFT", x, [np.array(step), window, np.array(length)], 1, onesided=1)
            yield Case(f"stft {samples} samples, {length} / {step}", stft, x, 1e-3)
    for length in (512, 4096):
        x = rng.standard_normal((32, length, 1)).astype(np.float32)
        dft = model("DFT", x, [], 1, axis=1, onesided=1)
        yield Case(f"dft 32 x {length}", dft, x, 1e-3)
    for batch in (1, 32):
        for size in (1000, 100000):
            x = rng.standard_normal((batch, size)).astype(np.float32)
            for k in (1, 10, 100):
                yield Case(f"topk {batch} x {size}, k {k}", model("TopK", x, [np.array([k])], 2), x)
    for density in (0.01, 0.5):
        x = (rng.random((1000, 1000)) < density).astype(np.float32)
        yield Case(f"nonzero 1000 x 1000, {density:.0%}", model("NonZero", x, [], 1), x)
    x = rng.integers(0, 1000, 100000)
    yield Case("unique 100000 of 1000", model("Unique", x, [], 4), x)


def peer(proto: onnx.ModelProto, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=providers)


def best_us(call: Callable[[], Any]) -> float:
    found, start = [], time.perf_counter()
    while len(found) < 3 or time.perf_counter() - start < ROUND_S:
        before = time.perf_counter()
        call()
        found.append(1e6 * (time.perf_counter() - before))
    return min(found)


def compare(case: Case, threads: int, rounds: int) -> tuple[str, ...]:
    feeds = {"x": case.x}
    exe, session = ingot.compile(case.model, threads=threads), peer(case.model, threads)
    for got, want in zip(exe.run(None, feeds), session.run(None, feeds), strict=True):
        limit = case.tolerance * float(np.abs(want).max())
        np.testing.assert_allclose(got, want, rtol=0, atol=limit, err_msg=case.name)
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(best_us(lambda: exe.run(None, feeds)))
        theirs.append(best_us(lambda: session.run(None, feeds)))
    a, b = min(ours), min(theirs)
    return (case.name, str(threads), f"{a:.1f}", f"{b:.1f}", f"{b / a:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="cases whose name contains one of these")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    args = parser.parse_args()
    chosen = [c for c in cases() if not args.words or any(w in c.name for w in args.words)]
    rows = [compare(c, threads, args.rounds) for c in chosen for threads in args.threads]
    print("\n".join(columns([HEAD, *rows])))


if __name__ == "__main__":
    main()

"""What one call costs: an 8-element Relu through `exe.run`, beside ONNX Runtime's `session.run`.

    python benchmarks/call_overhead.py [rounds]

Rounds of the contestants are interleaved, so that a noisy machine treats them alike; the median of
all calls is printed. Every check of the inputs is on.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import ingot

CALLS = 2000  # of a round


def relu() -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [8]) for n in ("x", "y")]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "relu", *map(list, zip(ports))
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model


def session(model: onnx.ModelProto, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def times_us(run: Callable, feeds: dict[str, np.ndarray]) -> list[float]:
    clock, found = time.perf_counter_ns, []
    for _ in range(CALLS):
        start = clock()
        run(None, feeds)
        found.append((clock() - start) / 1000)
    return found


def main(rounds: int = 10) -> None:
    model, feeds = relu(), {"x": np.linspace(-1, 1, 8, dtype=np.float32)}
    contestants: dict[str, Callable] = {}
    for threads in (1, 2):
        contestants[f"ingot, threads={threads}"] = ingot.compile(model, threads=threads).run
        contestants[f"onnxruntime, threads={threads}"] = session(model, threads).run
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            found[name] += times_us(run, feeds)
    for name, times in found.items():
        print(f"{name:24} {statistics.median(times):6.2f} µs")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

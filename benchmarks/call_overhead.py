"""Call overhead: an 8-element Relu through `exe.run`, versus ONNX Runtime's `session.run`, and as a
user-written kernel, called with and without its output array.

    python benchmarks/call_overhead.py [rounds]

Rounds of the implementations are interleaved, so that noise affects all of them alike. The median
of all calls is printed. All checks of the inputs are on.
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
from ingot.script import block, f32, grid

CALLS = 2000  # per round


def relu() -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [8]) for n in ("x", "y")]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "relu", *map(list, zip(ports))
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model


@ingot.kernel
def relu_kernel(X: f32[8], Y: f32[8]):
    for i in grid(8):
        with block("Y", spatial=(i,)) as (vi,):
            Y[vi] = max(X[vi], 0.0)


def session(model: onnx.ModelProto, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def times_us(run: Callable, arguments: tuple) -> list[float]:
    clock, found = time.perf_counter_ns, []
    for _ in range(CALLS):
        start = clock()
        run(*arguments)
        found.append((clock() - start) / 1000)
    return found


def main(rounds: int = 10) -> None:
    model, x, y = relu(), np.linspace(-1, 1, 8, dtype=np.float32), np.empty(8, np.float32)
    implementations: dict[str, tuple[Callable, tuple]] = {}
    for threads in (1, 2):
        exe, ort = ingot.compile(model, threads=threads), session(model, threads)
        implementations[f"ingot, threads={threads}"] = exe.run, (None, {"x": x})
        implementations[f"onnxruntime, threads={threads}"] = ort.run, (None, {"x": x})
    implementations["ingot kernel(x, y)"] = relu_kernel, (x, y)
    implementations["ingot y = kernel(x)"] = relu_kernel, (x,)
    relu_kernel(x, y)  # compiled before timing
    found: dict[str, list[float]] = {name: [] for name in implementations}
    for _ in range(rounds):
        for name, (run, arguments) in implementations.items():
            found[name] += times_us(run, arguments)
    for name, times in found.items():
        print(f"{name:24} {statistics.median(times):6.2f} µs")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

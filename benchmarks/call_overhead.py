"""Call overhead: an 8-element Relu through `exe.run`, versus ONNX Runtime's `session.run`, and as a
user-written kernel, called with and without its output array; a small MLP as a PyTorch module,
called with tensors: eager, torch.compile, ingot.compile, torch.compile(backend="ingot").

    python -m benchmarks.call_overhead [--rounds 10] [--json]

Rounds of the implementations are interleaved, so that noise affects all of them alike. The median
of all calls is printed. All checks of the inputs are on. Modules run with as many threads as the
two libraries take by default.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper

import ingot
from benchmarks.zoo.networks import tiny_mlp
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


Calls = dict[str, tuple[Callable, tuple]]  # what is called, with what


def relus() -> Calls:
    model, x, y = relu(), np.linspace(-1, 1, 8, dtype=np.float32), np.empty(8, np.float32)
    calls: Calls = {}
    for threads in (1, 2):
        exe, ort = ingot.compile(model, threads=threads), session(model, threads)
        calls[f"Relu: exe.run, threads={threads}"] = exe.run, (None, {"x": x})
        calls[f"Relu: ONNX Runtime's session.run, threads={threads}"] = ort.run, (None, {"x": x})
    calls["Relu: kernel(x, y)"] = relu_kernel, (x, y)
    calls["Relu: y = kernel(x)"] = relu_kernel, (x,)
    return calls


def modules() -> Calls:
    x, module = torch.randn(1, 64), tiny_mlp().eval()
    functions: dict[str, Any] = {
        "MLP: eager": module,
        "MLP: torch.compile": torch.compile(module),
        "MLP: ingot.compile(module)": ingot.compile(module, (x,)),
        'MLP: torch.compile(backend="ingot")': torch.compile(module, backend="ingot"),
    }
    return {name: (function, (x,)) for name, function in functions.items()}


def medians_us(calls: Calls, rounds: int) -> dict[str, float]:
    found: dict[str, list[float]] = {name: [] for name in calls}
    for run, arguments in calls.values():
        run(*arguments)  # compiled before timing
    for _ in range(rounds):
        for name, (run, arguments) in calls.items():
            found[name] += times_us(run, arguments)
    return {name: round(statistics.median(times), 2) for name, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.call_overhead")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    given = parser.parse_args()
    with torch.no_grad():
        found = medians_us({**relus(), **modules()}, given.rounds)
    if given.json:
        print(json.dumps(found))
        return
    for name, time_us in found.items():
        print(f"{name:44} {time_us:6.2f} µs")


if __name__ == "__main__":
    main()

"""Shared by the tests of specialise=: a dynamic model, its inputs, its outputs in ONNX Runtime, and
the processes that compile in the background."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import ingot
from tests.models.parts import info, model, node, rng, weight

TOLERANCE = 1e-5  # absolute, of softmax outputs: other tiles, another order of the sums
DEADLINE_S = 120.0  # for a process to start or to end; only a failing test waits that long


def dense(dim: str = "n", name: str = "dense") -> onnx.ModelProto:
    """softmax(x @ w) over rows: any number of them."""
    nodes = [node("MatMul", "x w", "h"), node("Softmax", "h", "y", axis=-1)]
    constants = {"w": weight(1, 96, 40)}
    return model(name, nodes, [info("x", [dim, 96])], [info("y", [dim, 40])], constants)


BYTES = dense().SerializeToString()


def rows(count: int) -> np.ndarray:
    return rng(count).standard_normal((count, 96)).astype(np.float32)


def expected(x: np.ndarray) -> np.ndarray:
    return onnxruntime.InferenceSession(BYTES, providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )[0]


def call(exe: ingot.Executable, x: np.ndarray, times: int = 1) -> np.ndarray:
    """The last of some calls; all of them agree with ONNX Runtime."""
    wanted = expected(x)
    for _ in range(times):
        (y,) = exe(x)
        np.testing.assert_allclose(y, wanted, atol=TOLERANCE, rtol=0)
    return y


def cached(*counts: int) -> list[ingot.Executable]:
    """Put builds for these numbers of rows into the model cache."""
    return [ingot.compile(BYTES, shapes={"n": count}, jobs=1) for count in counts]


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def build_processes() -> list[int]:
    """Children of this process that compile in the background."""
    tasks = Path("/proc/self/task").iterdir()
    children = [pid for task in tasks for pid in (task / "children").read_text().split()]
    return [int(pid) for pid in children if is_build_process(pid)]


def is_build_process(pid: str | int) -> bool:
    """Whether it runs: a process that has ended has no command line."""
    try:
        return b"ingot.build_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False

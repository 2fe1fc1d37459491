"""Shared by the runtime's tests: models compiled once, and scripts run in a process of their own.

A script sees `exe(name, threads)` for the packages it was given, `np`, `os`, `sys`, `threading`,
and `feeds(name)`; packages are handed over as plan files, so that it need not compile.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
from onnx import TensorProto as P

import ingot
from ingot.runtime import plan_file
from ingot.runtime.package import Package
from tests.models.build import HARD
from tests.models.parts import Case, Feeds, graph, info, model, node, rng, weight

ROOT = Path(__file__).parents[2]


def relu() -> Case:
    proto = model("relu", [node("Relu", "x", "y")], [info("x", [8])], [info("y", [8])])
    return proto, {"x": np.linspace(-1, 1, 8, dtype=np.float32)}


def rows() -> Case:
    """Symbolic sizes that two inputs share, worth two threads."""
    nodes = [
        node("MatMul", "a w", "h"),
        node("Add", "h b", "s"),
        node("Softmax", "s", "y", axis=-1),
    ]
    inputs = [info("a", ["n", 16]), info("b", ["n", "m"])]
    outputs = [info("y", ["n", "m"]), info("h", ["n", 12])]
    proto = model("rows", nodes, inputs, outputs, {"w": weight(1, 16, 12)})
    a, b = (rng(i).standard_normal((6, n)).astype(np.float32) for i, n in ((2, 16), (3, 12)))
    return proto, {"a": a, "b": b}


def endless(trips: int = 5) -> Case:
    """A loop that runs as long as asked, with work for several threads in each turn."""
    body = graph(
        "body",
        [node("MatMul", "s w", "t"), node("Tanh", "t", "u"), node("Identity", "go", "go_on")],
        [info("i", [], P.INT64), info("go", [], P.BOOL), info("s", ["n", 4])],
        [info("go_on", [], P.BOOL), info("u", ["n", 4])],
    )
    nodes = [node("Loop", "trips yes x", "y", body=body)]
    inputs = [info("x", ["n", 4]), info("trips", [], P.INT64)]
    constants = {"w": weight(4, 4, 4) * np.float32(2), "yes": np.array(True)}
    proto = model("endless", nodes, inputs, [info("y", ["n", 4])], constants)
    x = rng(5).standard_normal((16, 4)).astype(np.float32)
    return proto, {"x": x, "trips": np.array(trips)}


def lookup(bad: tuple[int, ...] = ()) -> Case:
    """Rows of a table by index, then a sum over them; positions in `bad` are out of range."""
    nodes = [
        node("Gather", "table rows", "picked"),
        node("ReduceSum", "picked axes", "y", keepdims=0),
    ]
    constants = {"table": weight(6, 10, 4), "axes": np.array([1])}
    proto = model("lookup", nodes, [info("rows", ["n"], P.INT64)], [info("y", ["n"])], constants)
    where = np.arange(64) % 10
    where[list(bad)] = [99 + i for i in bad]
    return proto, {"rows": where}


def runs_off(trips: int = 10) -> Case:
    """The index is the number of the turn: turn ten fails, in the middle of a loop."""
    body = graph(
        "body",
        [
            node("Gather", "table i", "row"),
            node("Add", "sum row", "next_sum"),
            node("Identity", "go", "go_on"),
        ],
        [info("i", [], P.INT64), info("go", [], P.BOOL), info("sum", ["n", 4])],
        [info("go_on", [], P.BOOL), info("next_sum", ["n", 4])],
    )
    proto = model(
        "runs_off",
        [node("Loop", "trips yes start", "y", body=body)],
        [info("start", ["n", 4]), info("trips", [], P.INT64)],
        [info("y", ["n", 4])],
        {"table": np.arange(40, dtype=np.float32).reshape(10, 4), "yes": np.array(True)},
    )
    return proto, {"start": np.zeros((16, 4), np.float32), "trips": np.array(trips)}


def wide_lstm() -> Case:
    """An LSTM over a batch of any size: each step is shared between threads."""
    nodes = [node("LSTM", "x w r", "y last cell", hidden_size=8)]
    inputs, outputs = (
        [info("x", [5, "n", 6])],
        [info("y", [5, 1, "n", 8]), info("last", [1, "n", 8])],
    )
    constants = {"w": weight(7, 1, 32, 6), "r": weight(8, 1, 32, 8)}
    proto = model("wide_lstm", nodes, inputs, outputs, constants)
    return proto, {"x": rng(9).standard_normal((5, 24, 6)).astype(np.float32)}


CASES: dict[str, Callable[[], Case]] = {
    **HARD, "relu": relu, "rows": rows, "endless": endless, "lookup": lookup,
    "wide_lstm": wide_lstm, "runs_off": runs_off,
}  # fmt: skip


def feeds(name: str) -> Feeds:
    return CASES[name]()[1]


@lru_cache
def package(name: str) -> Package:
    return ingot.compile(CASES[name]()[0]).package


def exe(name: str, threads: int = 2) -> ingot.Executable:
    """A new executable; its code was compiled once."""
    return ingot.Executable(package(name), threads)


def bits(arrays: list[np.ndarray]) -> list[bytes]:
    return [np.asarray(a).tobytes() for a in arrays]  # tensors too


_PRELUDE = """
import os, signal, sys, threading, time
import numpy as np
from tests.runtime.reloaded import exe, feeds, load, bits, crowd
load(sys.argv[1])
"""


def script(code: str, *names: str, timeout: float = 300) -> subprocess.CompletedProcess:
    """Run `code` with those packages at hand; a hang is an error, not a hang of the tests."""
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            plan_file.save(str(Path(folder, f"{name}.plan")), package(name))
            np.savez(Path(folder, f"{name}.npz"), **feeds(name))
        return subprocess.run(
            [sys.executable, "-c", _PRELUDE + code, folder],
            cwd=ROOT, timeout=timeout, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "INGOT_WORK_PER_THREAD_US": "0"},
        )  # fmt: skip


def assert_clean(done: subprocess.CompletedProcess, said: str = "") -> None:
    assert (done.returncode, done.stderr, done.stdout.strip()) == (0, "", said), done

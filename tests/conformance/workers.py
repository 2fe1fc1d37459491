"""Processes that run cases and survive a crash or a hang.

In: names of cases, a runtime ("ingot" or "onnxruntime"), the module of the cases, which has
`prepare` and `run_case`. Out: the result of each. Called by run.py of this suite and of PyTorch's,
and by the tests. A pair of processes runs all cases; one that crashes or hangs is started again.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import threading
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue

CASE_LIMIT_S = 120  # of one case, compilation included; the slowest take a few seconds
WORKERS = 2
ONNX_CASES = "tests.conformance.cases"


def serve(connection: Connection, runtime: str, module: str) -> None:
    """A worker: names of cases in, results out."""
    cases = importlib.import_module(module)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # runtimes log to it
    cases.prepare(runtime)
    connection.send("ready")
    while (name := connection.recv()) is not None:
        connection.send(cases.run_case(name, runtime))


class Worker:
    """A process that runs cases, started again after a crash or a hang."""

    def __init__(
        self, runtime: str, module: str = ONNX_CASES, limit_s: float = CASE_LIMIT_S
    ) -> None:
        self.runtime, self.module, self.limit_s = runtime, module, limit_s
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        arguments = (theirs, self.runtime, self.module)
        self.process = context.Process(target=serve, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self.connection.recv()

    def run(self, name: str) -> str:
        try:
            self.connection.send(name)
            if self.connection.poll(self.limit_s):
                return self.connection.recv()
            found = f"hang: more than {self.limit_s} s"
        except (EOFError, OSError):
            self.process.join()
            found = f"crash: exit code {self.process.exitcode}"
        self.process.kill()
        self.start()
        return found


def run_all(
    names: list[str],
    show: bool = False,
    runtime: str = "ingot",
    workers: int = WORKERS,
    module: str = ONNX_CASES,
    limit_s: float = CASE_LIMIT_S,
) -> dict[str, str]:
    """The result of each case."""
    todo: SimpleQueue[str] = SimpleQueue()
    for name in names:
        todo.put(name)
    found: dict[str, str] = {}

    def work() -> None:
        worker = Worker(runtime, module, limit_s)
        while True:
            try:
                name = todo.get_nowait()
            except Empty:
                break
            found[name] = worker.run(name)
            if show:
                print(f"{name}: {found[name]}", flush=True)
        worker.process.kill()

    threads = [threading.Thread(target=work) for _ in range(min(workers, len(names)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {name: found[name] for name in sorted(found)}

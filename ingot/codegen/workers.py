"""A pool of code-generation processes: module texts in, object bytes out, in the same order.

llvmlite holds one lock around every call and LLVM aborts on fatal errors, so texts are compiled in
processes. A worker that dies or runs out of time becomes an Ingot error that names the kernel; the
others go on. Workers live until the compiler's process exits and are never shared after a fork.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ingot.codegen import llvm_object
from ingot.codegen.llvm_worker import read_message, write_message
from ingot.support import knobs
from ingot.support.errors import IngotError


@dataclass(frozen=True)
class Job:
    """One module to compile; `name` is what an error calls it."""

    name: str
    text: str


@dataclass(frozen=True)
class Machine:
    """What to compile for, in LLVM's words."""

    triple: str
    cpu: str
    features: str
    level: int = 3


class Worker:
    """One process and the pipe to it."""

    def __init__(self) -> None:
        path = os.pathsep.join(p for p in sys.path if p)
        environment = knobs.child_environment(PYTHONPATH=path)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ingot.codegen.llvm_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the compiler; it then closes the workers
        )

    def compile(self, job: Job, machine: Machine, timeout_s: float) -> bytes:
        """Object bytes; IngotError if LLVM refuses, dies or takes too long."""
        assert self.process.stdin is not None and self.process.stdout is not None
        request = json.dumps({"text": job.text, **asdict(machine)}).encode()
        timer = threading.Timer(timeout_s, self.process.kill)
        timer.start()
        try:
            write_message(self.process.stdin, request)
            reply = read_message(self.process.stdout)
        except (BrokenPipeError, OSError):
            reply = None
        finally:
            in_time = timer.is_alive()
            timer.cancel()
        if not reply:
            raise self._death(job, in_time, timeout_s)
        if reply[0] == 1:
            raise refused(job, reply[1:].decode())
        return reply[1:]

    def _death(self, job: Job, in_time: bool, timeout_s: float) -> IngotError:
        status = self.process.wait()
        why = (
            f"the process ended with status {status}" if in_time else f"no answer in {timeout_s} s"
        )
        return IngotError(
            "codegen-failed",
            f"code generation for {job.name} did not finish",
            why=why,
            hint="compile again; if it repeats, set INGOT_DUMP_DIR and report the kernel's text",
        )

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def refused(job: Job, words: str) -> IngotError:
    return IngotError("codegen-failed", f"LLVM refused {job.name}", why=words.strip()[:2000])


_idle: list[Worker] = []
_lock = threading.Lock()
_owner = os.getpid()


def idle_workers() -> list[Worker]:
    """Workers at rest, for tests and for closing."""
    return list(_idle)


def _take() -> Worker:
    global _owner
    with _lock:
        if _owner != os.getpid():  # the parent's workers stay the parent's
            _idle.clear()
            _owner = os.getpid()
        while _idle:
            worker = _idle.pop()
            if worker.is_alive:
                return worker
            worker.close()
    return Worker()


def _give(worker: Worker) -> None:
    with _lock:
        _idle.append(worker)


@atexit.register
def close_all() -> None:
    with _lock:
        while _idle and _owner == os.getpid():
            _idle.pop().close()


def compile_all(jobs: Sequence[Job], machine: Machine, processes: int) -> list[bytes]:
    """Compile every job; the first failure, in the order of `jobs`, is raised."""
    if processes <= 1 or len(jobs) <= 1:
        return [compile_here(job, machine) for job in jobs]
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in sorted(range(len(jobs)), key=lambda n: -len(jobs[n].text)):
        todo.put(number)  # the longest first, so that no process ends late and alone
    results: dict[int, bytes | BaseException] = {}
    threads = [
        threading.Thread(target=_drain, args=(todo, jobs, machine, results))
        for _ in range(min(processes, len(jobs)))
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:  # Ctrl-C: let the running jobs end, start no more, then pass it on
        while not todo.empty():
            todo.get_nowait()
        for thread in threads:
            thread.join()
        raise
    return [_result(results, number) for number in range(len(jobs))]


def _result(results: dict[int, bytes | BaseException], number: int) -> bytes:
    result = results[number]
    if isinstance(result, BaseException):
        raise result
    return result


def _drain(
    todo: queue.SimpleQueue[int],
    jobs: Sequence[Job],
    machine: Machine,
    results: dict[int, bytes | BaseException],
) -> None:
    worker: Worker | None = None
    timeout_s = knobs.current().codegen_timeout_s
    while True:
        try:
            number = todo.get_nowait()
        except queue.Empty:
            break
        try:
            worker = worker or _take()
            results[number] = worker.compile(jobs[number], machine, timeout_s)
        except BaseException as error:
            results[number] = error
            if worker is not None and not worker.is_alive:
                worker = None
    if worker is not None:
        _give(worker)


def compile_here(job: Job, machine: Machine) -> bytes:
    """In this process: for one job, or when asked for one process."""
    try:
        return llvm_object.compile_text(text=job.text, **asdict(machine))
    except RuntimeError as error:
        raise refused(job, str(error)) from error

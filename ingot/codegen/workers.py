"""A pool of code-generation processes: module texts in, object bytes out, in the same order.

llvmlite holds one lock around every call and LLVM aborts on fatal errors, so texts are compiled in
processes. A worker that dies or runs out of time becomes an Ingot error that names the kernel; the
others go on. Workers live until the compiler's process ends and stay their parent's after a fork.
An interrupt (Ctrl-C) ends those that are at work and keeps the rest.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import subprocess
import sys
import tempfile
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
    """One process and the pipes to it."""

    def __init__(self) -> None:
        path = os.pathsep.join(p or os.getcwd() for p in sys.path)
        # what LLVM says before it aborts; closed by forget()
        self._complaints = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ingot.codegen.llvm_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            bufsize=0,  # nothing is left half-written in a buffer that a fork would copy
            env=knobs.child_environment(PYTHONPATH=path),
            start_new_session=True,  # Ctrl-C is for the compiler; it then closes the workers
        )
        _all.add(self)

    def compile(self, job: Job, machine: Machine, timeout_s: float) -> bytes:
        """Object bytes; IngotError if LLVM refuses, dies or takes too long."""
        assert self.process.stdin is not None and self.process.stdout is not None
        request = json.dumps({"text": job.text, **asdict(machine)}).encode()
        timed_out = threading.Event()

        def end() -> None:
            timed_out.set()
            self.process.kill()

        timer = threading.Timer(timeout_s, end)
        timer.start()
        try:
            write_message(self.process.stdin.fileno(), request)
            reply = read_message(self.process.stdout.fileno())
        except OSError:
            reply = None
        finally:
            timer.cancel()
        if reply is None:
            raise self._death(job, f"no answer in {timeout_s} s" if timed_out.is_set() else "")
        if reply[0] == 1:
            raise refused(job, reply[1:].decode())
        return reply[1:]

    def _death(self, job: Job, why: str) -> IngotError:
        self.process.kill()  # its pipes are closed, so it is of no more use
        status = self.process.wait()
        self._complaints.seek(0)
        words = self._complaints.read().decode(errors="replace").strip()[-1000:]
        return IngotError(
            "codegen-failed",
            f"code generation for {job.name} did not finish",
            why=why or f"its process ended with status {status}" + (words and f": {words}"),
            hint="compile again; if it repeats, set INGOT_DUMP_DIR and report the kernel's text",
        )

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.forget()

    def forget(self) -> None:
        """Let go of the pipes; a worker that still lives then sees its input end."""
        _all.discard(self)
        for stream in (self.process.stdin, self.process.stdout, self._complaints):
            if stream is not None:
                stream.close()


def refused(job: Job, words: str) -> IngotError:
    return IngotError("codegen-failed", f"LLVM refused {job.name}", why=words.strip()[:2000])


_all: set[Worker] = set()
_idle: list[Worker] = []  # append and pop are atomic: no lock that a fork could leave held


def live_workers() -> list[Worker]:
    """Every worker of this process, at rest or not."""
    return list(_all)


def _take() -> Worker:
    while True:
        try:
            worker = _idle.pop()
        except IndexError:
            return Worker()
        if worker.is_alive:
            return worker
        worker.close()


def _after_fork() -> None:
    """In a child: the parent's workers stay the parent's, and see its end, not ours."""
    _idle.clear()
    for worker in live_workers():
        worker.process.returncode = 0  # it is no child of ours: never wait for it
        worker.forget()


@atexit.register
def close_all() -> None:
    _idle.clear()
    for worker in live_workers():
        worker.close()


os.register_at_fork(after_in_child=_after_fork)


def compile_all(jobs: Sequence[Job], machine: Machine, processes: int) -> list[bytes]:
    """Compile every job; the first failure, in the order of `jobs`, is raised."""
    if processes <= 1 or len(jobs) <= 1:
        return [compile_here(job, machine) for job in jobs]
    crew = _Crew(jobs, machine)
    try:
        for _ in range(min(processes, len(jobs))):
            crew.start_one()
        crew.wait()
    except BaseException:
        crew.abandon()
        crew.wait()
        raise
    return [crew.result(number) for number in range(len(jobs))]


class _Crew:
    """Threads that feed one worker each, until there are no more jobs."""

    def __init__(self, jobs: Sequence[Job], machine: Machine):
        self._jobs, self._machine = jobs, machine
        self._timeout_s = knobs.current().codegen_timeout_s
        self._todo: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in sorted(range(len(jobs)), key=lambda n: -len(jobs[n].text)):
            self._todo.put(number)  # the longest first, so that no process ends late and alone
        self._results: dict[int, bytes | BaseException] = {}
        self._busy: set[Worker] = set()
        self._is_abandoned = False
        self._ended: list[threading.Event] = []

    def start_one(self) -> None:
        ended = threading.Event()
        thread = threading.Thread(target=self._work_until_the_end, args=(ended,))
        self._ended.append(ended)
        thread.start()

    def wait(self) -> None:
        """Until every thread has ended. Not by Thread.join: once interrupted, a join leaves
        the thread marked as ended, and the next one returns at once."""
        for ended in self._ended:
            ended.wait()

    def _work_until_the_end(self, ended: threading.Event) -> None:
        try:
            self.work()
        finally:
            ended.set()

    def work(self) -> None:
        worker: Worker | None = None
        while not self._is_abandoned:
            try:
                number = self._todo.get_nowait()
            except queue.Empty:
                break
            try:
                worker = worker or self._hire()
                job = self._jobs[number]
                self._results[number] = worker.compile(job, self._machine, self._timeout_s)
            except BaseException as error:  # handed to the thread that waits
                self._results[number] = error
                if worker is not None and not worker.is_alive:
                    self._busy.discard(worker)
                    worker.close()
                    worker = None
        if worker is not None:
            self._busy.discard(worker)
            _idle.append(worker)

    def _hire(self) -> Worker:
        worker = _take()
        self._busy.add(worker)
        if self._is_abandoned:  # it may have come too late to be ended by abandon()
            worker.process.kill()
        return worker

    def abandon(self) -> None:
        """Start nothing more, and end what is running."""
        self._is_abandoned = True
        for worker in list(self._busy):
            worker.process.kill()

    def result(self, number: int) -> bytes:
        result = self._results[number]
        if isinstance(result, BaseException):
            raise result
        return result


def compile_here(job: Job, machine: Machine) -> bytes:
    """In this process: for one job, or when asked for one process."""
    try:
        return llvm_object.compile_text(text=job.text, **asdict(machine))
    except RuntimeError as error:
        raise refused(job, str(error)) from error

"""A pool of worker processes: module texts or calls in, objects or results out, in the same order.

llvmlite holds one lock around every call and LLVM aborts on fatal errors, so worker processes
compile the texts. They also schedule and legalise kernels (calls.py), since Python runs on one
core. A worker that dies or times out becomes an Ingot error that names the kernel; the
others continue. Workers live until the compiler's process ends; after a fork they belong to the
parent. An interrupt (Ctrl-C) ends the busy workers and keeps the idle ones.
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
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import asdict, dataclass

from ingot.codegen import llvm_object
from ingot.codegen.llvm_worker import read_message, write_message
from ingot.support import options, progress
from ingot.support.errors import IngotError


@dataclass(frozen=True)
class Job:
    """One module to compile; errors refer to it by `name`."""

    name: str
    text: str


@dataclass(frozen=True)
class Call:
    """One call as bytes (call_messages.py); errors refer to it by `name`."""

    name: str
    data: bytes


@dataclass(frozen=True)
class MachineSpec:
    """The compilation target, in LLVM's terms."""

    triple: str
    cpu: str
    features: str
    level: int = 3


class WorkerProcess:
    """One process and the pipes to it."""

    def __init__(self, imports: Sequence[str] = ()) -> None:
        """`imports`: modules that it will need, by their names in support/lazy.py."""
        path = os.pathsep.join(p or os.getcwd() for p in sys.path)
        # what LLVM prints before it aborts; closed by forget()
        self._stderr = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ingot.codegen.llvm_worker", *imports],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            bufsize=0,  # no half-written buffer that a fork would copy
            env=options.child_environment(PYTHONPATH=path),
            start_new_session=True,  # Ctrl-C is for the compiler; it then closes the workers
        )
        _all.add(self)

    def compile(self, job: Job, machine: MachineSpec, timeout_s: float) -> bytes:
        """Object bytes; IngotError if LLVM rejects the text, crashes or times out."""
        request = json.dumps({"text": job.text, **asdict(machine)}).encode()
        reply = self.ask(request, f"code generation for {job.name}", timeout_s)
        if reply[0] == 1:
            raise rejected(job, reply[1:].decode())
        return reply[1:]

    def ask(self, request: bytes, what: str, timeout_s: float) -> bytes:
        """The reply; IngotError if there is none."""
        with progress.timed(what):
            return self._ask(request, what, timeout_s)

    def _ask(self, request: bytes, what: str, timeout_s: float) -> bytes:
        assert self.process.stdin is not None and self.process.stdout is not None
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
            raise self._death(what, f"no reply within {timeout_s} s" if timed_out.is_set() else "")
        return reply

    def _death(self, what: str, why: str) -> IngotError:
        self.process.kill()  # its pipes are closed, so it cannot be reused
        status = self.process.wait()
        self._stderr.seek(0)
        message = self._stderr.read().decode(errors="replace").strip()[-1000:]
        return IngotError(
            "codegen-failed",
            f"{what} did not finish",
            why=why or f"its process ended with status {status}" + (message and f": {message}"),
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
        """Close the pipes; a worker that is still alive then reads the end of its input."""
        _all.discard(self)
        for stream in (self.process.stdin, self.process.stdout, self._stderr):
            if stream is not None:
                stream.close()


Do = Callable[[WorkerProcess, int], bytes]  # the job of that number, in that process


def rejected(job: Job, message: str) -> IngotError:
    return IngotError("codegen-failed", f"LLVM rejected {job.name}", why=message.strip()[:2000])


_all: set[WorkerProcess] = set()
_idle: list[WorkerProcess] = []  # append and pop are atomic: no lock that a fork could leave held


def live_workers() -> list[WorkerProcess]:
    """Every worker of this process, idle or busy."""
    return list(_all)


def _take_idle() -> WorkerProcess:
    while True:
        try:
            worker = _idle.pop()
        except IndexError:
            return WorkerProcess()
        if worker.is_alive:
            return worker
        worker.close()


def _after_fork() -> None:
    """In a forked child: the parent's workers belong to the parent, and end with it."""
    _idle.clear()
    for worker in live_workers():
        worker.process.returncode = 0  # not a child of this process: never wait for it
        worker.forget()


@atexit.register
def close_all() -> None:
    _idle.clear()
    for worker in live_workers():
        worker.close()


os.register_at_fork(after_in_child=_after_fork)


def start(processes: int, imports: Sequence[str]) -> None:
    """Let so many workers exist, without waiting for them: they import while this process works."""
    for _ in range(processes - len(live_workers())):
        _idle.append(WorkerProcess(imports))


def compile_all(jobs: Sequence[Job], machine: MachineSpec, processes: int) -> list[bytes]:
    """Compile every job; the first failure, in the order of `jobs`, is raised."""
    if processes <= 1 or len(jobs) <= 1:
        return [compile_here(job, machine) for job in jobs]
    timeout_s = options.current().codegen_timeout_s

    def do(worker: WorkerProcess, number: int) -> bytes:
        return worker.compile(jobs[number], machine, timeout_s)

    return _run_all([len(job.text) for job in jobs], do, processes)


def call_all(calls: Sequence[Call], processes: int) -> list[bytes]:
    """The reply to every call; the first process that died, in the order of `calls`, is raised."""
    timeout_s = options.current().codegen_timeout_s

    def do(worker: WorkerProcess, number: int) -> bytes:
        return worker.ask(calls[number].data, calls[number].name, timeout_s)

    return _run_all([len(call.data) for call in calls], do, processes)


def _run_all(lengths: Sequence[int], do: Do, processes: int) -> list[bytes]:
    job_queue = _JobQueue(lengths, do)
    try:
        for _ in range(min(processes, len(lengths))):
            job_queue.start_one()
        job_queue.wait()
    except BaseException:
        job_queue.abandon()
        job_queue.wait()
        raise
    return [job_queue.result(number) for number in range(len(lengths))]


class _JobQueue:
    """Numbered jobs, and threads that each feed one worker process until no job is left."""

    def __init__(self, lengths: Sequence[int], do: Do):
        self._do, self._count = do, len(lengths)
        self._todo: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in sorted(range(len(lengths)), key=lambda n: -lengths[n]):
            self._todo.put(number)  # longest first, so that the processes end at about one time
        self._results: dict[int, bytes | BaseException] = {}
        self._busy: set[WorkerProcess] = set()
        self._is_abandoned = False
        self._ended: list[threading.Event] = []

    def start_one(self) -> None:
        ended = threading.Event()
        # a thread has a context of its own: it is given this one, with the options in force
        thread = threading.Thread(target=copy_context().run, args=(self._run_thread, ended))
        self._ended.append(ended)
        thread.start()

    def wait(self) -> None:
        """Wait until every thread has ended. Not by Thread.join: an interrupted join marks the
        thread as ended, and the next join returns at once."""
        for ended in self._ended:
            ended.wait()

    def _run_thread(self, ended: threading.Event) -> None:
        try:
            self.work()
        finally:
            ended.set()

    def work(self) -> None:
        worker: WorkerProcess | None = None
        while not self._is_abandoned:
            try:
                number = self._todo.get_nowait()
            except queue.Empty:
                break
            try:
                worker = worker or self._acquire()
                self._results[number] = self._do(worker, number)
                progress.at_job(len(self._results), self._count)
            except BaseException as error:  # re-raised by result()
                self._results[number] = error
                if worker is not None and not worker.is_alive:
                    self._busy.discard(worker)
                    worker.close()
                    worker = None
        if worker is not None:
            self._busy.discard(worker)
            _idle.append(worker)

    def _acquire(self) -> WorkerProcess:
        worker = _take_idle()
        self._busy.add(worker)
        if self._is_abandoned:  # abandon() may have missed it
            worker.process.kill()
        return worker

    def abandon(self) -> None:
        """Start no more jobs, and kill the busy workers."""
        self._is_abandoned = True
        for worker in list(self._busy):
            worker.process.kill()

    def result(self, number: int) -> bytes:
        result = self._results[number]
        if isinstance(result, BaseException):
            raise result
        return result


def compile_here(job: Job, machine: MachineSpec) -> bytes:
    """Compile in this process: for a single job, or with processes=1."""
    try:
        with progress.timed(f"code generation for {job.name}"):
            return llvm_object.compile_text(text=job.text, **asdict(machine))
    except RuntimeError as error:
        raise rejected(job, str(error)) from error

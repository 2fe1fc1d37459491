"""Code-generation processes: killed, stopped, rejected, aborted, forked, interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ingot
from ingot import IngotError
from ingot.codegen import llvm, llvm_object, workers
from ingot.codegen.llvm_worker import read_message, write_message
from ingot.codegen.workers import Job, MachineSpec, compile_all
from ingot.runtime.cpu.elf import ObjectFile
from ingot.support import options
from tests.refusal import check, refused
from tests.runtime.common import relu

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """No workers from before, and none left behind."""
    workers.close_all()
    yield
    workers.close_all()
    assert children(os.getpid()) == []


def children(pid: int) -> list[int]:
    """Code-generation processes of `pid`, from the system's own list."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            command = (folder / "cmdline").read_bytes()
        except (OSError, IndexError):
            continue
        if parent == pid and b"llvm_worker" in command:
            found.append(int(folder.name))
    return found


def machine() -> MachineSpec:
    triple, _, features = llvm_object.host()
    return MachineSpec(triple, "x86-64", features)


GOOD = Job("kernel good", "define i32 @k() { ret i32 7 }")


def long_job(name: str = "kernel long", blocks: int = 20_000) -> Job:
    """A text that keeps LLVM busy for half a minute."""
    lines = ["define i64 @k(i64 %x, ptr %p) {", "br label %b0"]
    for i in range(blocks):
        lines += [
            f"b{i}:", f"%a{i} = load volatile i64, ptr %p", f"%c{i} = mul i64 %a{i}, %x",
            f"%d{i} = icmp slt i64 %c{i}, {i * 7919}",
            f"br i1 %d{i}, label %b{i + 1}, label %b{(i * 31 + 7) % blocks + 1}",
        ]  # fmt: skip
    lines += [f"b{blocks}:", "ret i64 0", "}"]
    return Job(name, "\n".join(lines))


def failure(jobs: list[Job]) -> IngotError:
    with pytest.raises(IngotError) as caught:
        compile_all(jobs, machine(), 2)
    assert caught.value.code == "codegen-failed"
    return caught.value


def works_again() -> None:
    objects = compile_all([GOOD, GOOD, GOOD], machine(), 2)
    assert len(set(objects)) == 1 and ObjectFile(objects[0]).undefined() == []


def busy_worker() -> int:
    """The process that has used the most time, once one has used some."""
    for _ in range(600):
        used = {}
        for pid in children(os.getpid()):
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            used[pid] = int(fields[11]) + int(fields[12])
        if used and max(used.values()) > 100:  # a second: it has started and is at work
            return max(used, key=lambda pid: used[pid])
        time.sleep(0.05)
    raise AssertionError("no worker is busy")


def test_objects_come_in_the_order_of_the_jobs():
    jobs = [Job(f"kernel {n}", f"define i32 @k{n}() {{ ret i32 {n} }}") for n in range(20)]
    objects = compile_all(jobs, machine(), 3)
    names = [{s.name for s in ObjectFile(data).symbols} for data in objects]
    assert all(f"k{n}" in found for n, found in enumerate(names))
    assert objects == compile_all(jobs, machine(), 1), "in this process the same"
    assert len(workers.live_workers()) == 3


def test_a_killed_worker_names_its_kernel():
    def kill() -> None:
        os.kill(busy_worker(), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    error = failure([GOOD, long_job(), GOOD])
    killer.join()
    check(error, "codegen-failed", -9, where="kernel long", hint="INGOT_DUMP_DIR")
    works_again()


def test_a_stopped_worker_runs_out_of_time():
    compile_all([GOOD, GOOD], machine(), 2)
    for pid in children(os.getpid()):
        os.kill(pid, signal.SIGSTOP)
    with options.override(codegen_timeout_s=0.3):
        error = failure([GOOD, Job("kernel other", GOOD.text)])
    check(error, "codegen-failed", "0.3 s", where="kernel good", hint="INGOT_DUMP_DIR")
    works_again()


def test_an_idle_worker_that_died_is_replaced():
    compile_all([GOOD, GOOD], machine(), 2)
    for pid in children(os.getpid()):
        os.kill(pid, signal.SIGKILL)
    while any(worker.is_alive for worker in workers.live_workers()):
        time.sleep(0.01)
    works_again()


@pytest.mark.parametrize(
    "text, words",  # LLVM's own
    [
        ("define i32 @k() { ret i64 1 }", "result type"),
        ("define i32 @k() {", "end of file"),
        ("what is this", "expected top-level entity"),
    ],
)
def test_a_text_that_llvm_rejects(text: str, words: str):
    for jobs in ([GOOD, Job("kernel odd", text)], [Job("kernel odd", text)]):
        error = failure(jobs)
        check(error, "codegen-failed", where="kernel odd", why=words, hint=False)
    works_again()


def test_an_abort_of_llvm_is_contained():
    scalable = "<vscale x 4 x i32>"
    text = f"define {scalable} @k({scalable} %a) {{ ret {scalable} %a }}"
    error = failure([GOOD, Job("kernel wide", text), GOOD])
    check(error, "codegen-failed", where="kernel wide", why="scalable vector")  # LLVM's words
    works_again()


def test_the_first_failure_in_order_is_raised():
    bad = [Job(f"kernel {n}", "nonsense" * n) for n in (1, 2, 3)]
    check(failure([GOOD, *bad]), "codegen-failed", where="kernel 1", hint=False)


def test_a_failing_kernel_fails_the_compilation(monkeypatch: pytest.MonkeyPatch):
    """From ingot.compile, the error names the kernel of the model."""
    print_kernel = llvm.kernel_text
    monkeypatch.setattr(llvm, "kernel_text", lambda kernel: print_kernel(kernel) + "\nrubbish")
    with refused("codegen-failed", where="kernel relu", hint=False):
        ingot.compile(relu()[0], jobs=2)
    monkeypatch.undo()
    assert ingot.compile(relu()[0], jobs=2)(relu()[1]["x"])[0].min() == 0


def test_a_truncated_reply_is_a_crash():
    """A reply cut short is not taken for an object."""
    read, write = os.pipe()
    write_message(write, b"whole")
    os.write(write, b"\x10\0\0\0half")
    os.close(write)
    assert read_message(read) == b"whole"
    assert read_message(read) is None
    os.close(read)


def test_what_a_worker_prints_is_not_a_reply():
    code = (
        "import sys\nfrom ingot.codegen import llvm_object, llvm_worker\n"
        "real = llvm_object.compile_text\n"
        "def loud(**k):\n    print('hello'); sys.stdout.flush(); return real(**k)\n"
        "llvm_object.compile_text = loud\nllvm_worker.main()\n"
    )
    worker = workers.WorkerProcess()
    worker.close()
    worker.process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
        stderr=subprocess.DEVNULL, bufsize=0,
    )  # fmt: skip
    assert ObjectFile(worker.compile(GOOD, machine(), 60)).undefined() == []
    worker.process.kill()
    worker.process.communicate()


# --- the compiler's process ---------------------------------------------------------------------

SCRIPT = """
import os, signal, sys, threading, time
from ingot.codegen import workers
from ingot.support import options
from tests.codegen.test_workers import *
"""


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + code], cwd=ROOT, capture_output=True, text=True,
        timeout=400, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def test_interrupt_during_a_compilation():
    """Ctrl-C ends the worker that is busy, keeps the others, and the next compilation works."""
    out = run("""
threading.Thread(target=lambda: (busy_worker(), os.kill(os.getpid(), signal.SIGINT))).start()
try:
    compile_all([long_job(), long_job(), GOOD, GOOD], machine(), 2)
    print("not interrupted")
except KeyboardInterrupt:
    assert not any(w.is_alive for w in workers.live_workers() if w not in workers._idle)
    works_again()
    print(*children(os.getpid()))
""")
    left = [int(pid) for pid in out.split()]
    assert len(left) == 2 and not any(Path(f"/proc/{pid}").exists() for pid in left)


def test_interrupts_anywhere_in_a_compilation():
    out = run("""
import random
random.seed(2)
from tests.runtime.common import rows
model = rows()[0]
signal.signal(signal.SIGALRM, signal.default_int_handler)
caught = 0
for _ in range(12):
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.01, 0.5))
        ingot.compile(model, jobs=2)
    except KeyboardInterrupt:
        caught += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    alive = [w for w in workers.live_workers() if w.is_alive]
    assert all(w in workers._idle for w in alive), "a worker is at work for nobody"
ingot.compile(model, jobs=2)
assert len(children(os.getpid())) <= 2
print(caught)
""")
    assert int(out) > 0


def test_workers_end_with_the_compiler():
    """However it ends: by itself, or killed."""
    for end in ("sys.exit(0)", "os._exit(0)"):
        pids = [
            int(p)
            for p in run(f"works_again(); print(*children(os.getpid()), flush=True)\n{end}").split()
        ]
        assert len(pids) == 2
        for _ in range(200):
            if not any(is_running(pid) for pid in pids):
                break
            time.sleep(0.05)
        else:
            raise AssertionError("a worker outlives its compiler")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_forked_child_has_workers_of_its_own():
    out = run("""
works_again()
before = children(os.getpid())
pid = os.fork()
if not pid:
    assert workers.live_workers() == []
    works_again()
    assert len(children(os.getpid())) == 2
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
works_again()
assert children(os.getpid()) == before
print("both")
""")
    assert out.strip() == "both"


@pytest.mark.long  # a busy machine may take minutes over it
def test_a_fork_in_the_middle_of_a_compilation():
    out = run("""
done = []
thread = threading.Thread(target=lambda: done.append(compile_all([GOOD] * 60, machine(), 2)))
thread.start()
for _ in range(5):
    pid = os.fork()
    if not pid:
        works_again()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
thread.join()
assert len(done[0]) == 60 and len(set(done[0])) == 1
print("sound")
""")
    assert out.strip() == "sound"

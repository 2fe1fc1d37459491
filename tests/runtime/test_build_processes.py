"""Background builds and processes: a child that dies, forks, interrupts, exits, close()."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ingot
from ingot.support import options
from tests.runtime.common import ROOT
from tests.runtime.specialising import (
    BYTES,
    build_processes,
    call,
    is_build_process,
    rows,
    until,
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> Iterator[Path]:
    with options.override(cache_dir=str(tmp_path / "cache"), cache_models=True):
        yield tmp_path


def building(calls: int = 3) -> tuple[ingot.Executable, int]:
    """An executable and the process that compiles for it."""
    exe = ingot.compile(BYTES, jobs=1, specialise={"calls": calls})
    call(exe, rows(6), calls)
    until(build_processes)
    (pid,) = build_processes()
    return exe, pid


def test_a_child_that_is_killed_is_recorded_and_calls_go_on():
    exe, pid = building()
    assert exe.specialised == {"n=6": "building"} and not exe.wait_for_builds(0)
    os.kill(pid, signal.SIGKILL)
    assert exe.wait_for_builds(300)
    state = "failed: the compiling process failed; it ended with status -9"
    assert exe.specialised == {"n=6": state}
    assert f"specialised for n=6: {state}" in exe.report()
    call(exe, rows(6), 10)
    assert exe.specialised == {"n=6": state} and not build_processes()
    call(exe, rows(7), 3)  # another size has another try
    assert exe.wait_for_builds(300) and exe.specialised["n=7"] == "ready"


def test_an_error_of_the_compiler_is_recorded(home: Path):
    (home / "m.onnx").write_bytes(BYTES)
    exe = ingot.compile(home / "m.onnx", jobs=1, specialise={"calls": 3})
    (home / "m.onnx").write_bytes(b"\x08not a model")
    call(exe, rows(6), 3)
    assert exe.wait_for_builds(300)
    assert exe.specialised["n=6"].startswith("failed: ") and "m.onnx" in exe.specialised["n=6"]
    call(exe, rows(6), 3)


def test_close_ends_the_child():
    exe, pid = building()
    other = exe.context()
    exe.close()
    assert is_build_process(pid), "a context still wants it"
    other.close()
    assert other.wait_for_builds(300) and not is_build_process(pid)
    assert other.specialised.get("n=6") != "ready"


def test_an_executable_that_is_collected_ends_its_child():
    exe, pid = building()
    del exe
    until(lambda: not is_build_process(pid))


PRELUDE = """
import os, signal, sys, threading, time
from tests.runtime.test_build_processes import *
def status_of(work):
    pid = os.fork()
    if not pid:
        signal.alarm(200)  # ends a child that hangs
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]
"""


def script(code: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + code],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=options.child_environment(PYTHONPATH=str(ROOT)),
    )  # fmt: skip


def output(process: subprocess.Popen) -> str:
    out, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (0, ""), (process.returncode, out, errors)
    return out.strip()


def test_fork_while_a_build_is_under_way():
    """The forked process leaves its parent's build alone, and makes its own."""
    code = """
exe, pid = building()
def in_child():
    assert exe.specialised == {} and exe.wait_for_builds(0)
    call(exe, rows(6), 3)
    assert exe.wait_for_builds(150) and exe.specialised == {"n=6": "ready"}
    call(exe, rows(6), 3)
    exe.close()
os.kill(pid, signal.SIGSTOP)  # it does not end before the fork does
assert status_of(in_child) == 0
assert status_of(exe.close) == 0
assert is_build_process(pid) and exe.specialised == {"n=6": "building"}
os.kill(pid, signal.SIGCONT)
assert exe.wait_for_builds(150) and exe.specialised == {"n=6": "ready"}
assert status_of(lambda: call(exe, rows(6), 5)) == 0
call(exe, rows(6), 5)
print("both")
"""
    assert output(script(code)) == "both"


def test_exit_ends_the_child():
    pid = output(script("exe, pid = building()\nprint(pid)"))
    assert not is_build_process(pid)


def test_a_parent_that_is_killed_takes_the_child_along(home: Path):
    """The child is stopped as soon as it exists, and goes on when it has no parent."""
    code = """
exe, pid = building()
os.kill(pid, signal.SIGSTOP)
print(pid, flush=True)
time.sleep(300)
"""
    process = script(code)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    process.communicate()
    before = list((home / "cache" / "models").iterdir())
    assert is_build_process(pid) and len(before) == 1, "the general build"
    os.kill(pid, signal.SIGCONT)
    until(lambda: not is_build_process(pid))
    assert list((home / "cache" / "models").iterdir()) == before


def test_interrupt_while_a_build_is_under_way():
    """As Ctrl-C in a terminal, which goes to the whole process group."""
    code = """
os.setpgid(0, 0)
exe, pid = building()
os.kill(pid, signal.SIGSTOP)
try:
    os.killpg(0, signal.SIGINT)
    exe.wait_for_builds(150)
    print("no interrupt")
except KeyboardInterrupt:
    os.kill(pid, signal.SIGCONT)
    assert exe.wait_for_builds(150) and exe.specialised == {"n=6": "ready"}
    call(exe, rows(6), 5)
    print("sound")
"""
    assert output(script(code)) == "sound"

"""On a terminal there are tables with lines and progress bars; an interrupt has its exit code."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.small import small_model

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("small") / "small.onnx"
    path.write_bytes(small_model().SerializeToString())
    return path


def environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("INGOT_")}
    return {**kept, "TERM": "xterm-256color", "COLUMNS": "120", "PYTHONPATH": str(ROOT)}


def on_a_terminal(*args: object) -> tuple[int, str]:
    """The exit code, and what the terminal was sent, without its colours."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "ingot.cli", *map(str, args)],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment(), cwd=ROOT,
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    while True:
        try:
            data = os.read(ours, 4096)
        except OSError:  # how Linux says that the other end is closed
            break
        if not data:
            break
        seen += data
    os.close(ours)
    return process.wait(), re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", seen.decode(errors="replace"))


def test_tables_and_bars(small: Path):
    code, seen = on_a_terminal("compile", small, "--shape", "batch=2", "--jobs", 1)
    assert code == 0, seen
    assert "┃ memory" in seen and "│ weights" in seen, "a table with lines"
    assert "━" in seen and "codegen" in seen, "a bar that names the stage at work"
    assert "matmul_add_relu" in seen


def test_a_benchmark_has_a_bar(small: Path):
    words = ("--peers", "onnxruntime", "--threads", 1, "--rounds", 1, "--round-s", 0)
    code, seen = on_a_terminal("bench", small, *words)
    assert code == 0, seen
    assert "compiling with ingot" in seen and "onnxruntime, round 1" in seen
    assert "Ingot's outputs match" in seen


def test_an_interrupt(small: Path, tmp_path: Path):
    """It comes while the command waits for an input that nobody writes."""
    fifo = tmp_path / "x.npy"
    os.mkfifo(fifo)
    process = subprocess.Popen(
        [sys.executable, "-m", "ingot.cli", "run", str(small), "--input", f"x={fifo}"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), cwd=ROOT,
    )  # fmt: skip
    writer = when_read(fifo, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    os.close(writer)
    assert process.returncode == 130 and not out
    assert "interrupted" in err and "Traceback" not in err


def when_read(fifo: Path, process: subprocess.Popen) -> int:
    """The pipe's other end, as soon as the process has opened its own."""
    while process.poll() is None:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody reads yet
            time.sleep(0.05)
    raise AssertionError(process.communicate())

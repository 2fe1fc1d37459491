"""Progress of a compilation: log records, and a bar only on a terminal."""

from __future__ import annotations

import logging
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ingot
from ingot.support import progress
from tests.small import small_model

ROOT = Path(__file__).parents[2]
COMPILE = """
import sys
from ingot.support import progress
progress.DELAY_S = {delay}
import ingot
ingot.compile({path!r}, jobs=1, options={{"progress": {wanted}, "cache_dir": "off"}})
print("RICH", "rich" in sys.modules)
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("small") / "small.onnx"
    path.write_bytes(small_model().SerializeToString())
    return path


def on_a_terminal(code: str) -> tuple[str, str]:
    """What is printed, and what a terminal on stderr is sent, without its colours."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, text=True, cwd=ROOT,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"},
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    while True:
        try:
            data = os.read(ours, 4096)
        except OSError:  # how Linux says that the other end is closed
            break
        seen += data
    os.close(ours)
    assert process.stdout is not None
    printed = process.stdout.read()
    assert process.wait() == 0, seen
    return printed, re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", seen.decode(errors="replace"))


def test_a_bar_names_the_stages(small: Path):
    printed, seen = on_a_terminal(COMPILE.format(delay=0, path=str(small), wanted=True))
    assert "━" in seen and "codegen" in seen
    assert printed == "RICH True\n"


@pytest.mark.parametrize("delay, wanted", [(0, False), (1000, True)])
def test_no_bar(small: Path, delay: int, wanted: bool):
    """It is switched off, or the compilation is shorter than the delay: rich is not even loaded."""
    printed, seen = on_a_terminal(COMPILE.format(delay=delay, path=str(small), wanted=wanted))
    assert seen == "" and printed == "RICH False\n"


def test_no_bar_without_a_terminal(small: Path):
    code = COMPILE.format(delay=0, path=str(small), wanted=True)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "RICH False\n", "")


def messages(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "ingot" and r.levelno == level]


def test_log_records(small: Path, tmp_path: Path, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG, "ingot")
    monkeypatch.setattr(progress, "SLOW_S", 0.0)
    options = {"cache_dir": str(tmp_path), "cache_models": True}
    ingot.compile(small, jobs=1, options=options)
    stages = {m.split()[1].rstrip(":") for m in messages(caplog, logging.DEBUG) if "stage" in m}
    assert {"import", "fuse", "schedule", "codegen"} <= stages
    assert any(re.fullmatch(r"kernel cache: 0 of \d+ objects", m)
               for m in messages(caplog, logging.DEBUG))  # fmt: skip
    info = messages(caplog, logging.INFO)
    assert any(m.startswith("small: compile time ") for m in info)
    assert any(m.startswith("slow: code generation for kernel matmul_add_relu") for m in info)
    caplog.clear()
    ingot.compile(small, jobs=1, options=options)
    assert [m.partition(" in ")[0] for m in messages(caplog, logging.INFO)] == [
        "small: from the model cache"
    ]


def test_a_compilation_inside_another_is_part_of_it(monkeypatch):
    """A stand-in for the terminal; the bar is real."""
    monkeypatch.setattr(progress, "is_terminal", lambda: True)
    with progress.shown(delay_s=1000):
        outer = progress._bar.get()
        with progress.shown(delay_s=1000):
            assert progress._bar.get() is outer is not None
        assert progress._bar.get() is outer
        progress.at_stage(3, 8, "lower")
        progress.at_job(1, 2)
    assert progress._bar.get() is None

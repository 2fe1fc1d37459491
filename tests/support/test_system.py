"""On other systems than Linux everything public says so, in the first line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_as_if_on(platform: str, code: str) -> subprocess.CompletedProcess[str]:
    """A process whose `sys.platform` is another one before Ingot is imported."""
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.platform = {platform!r}\n{code}"],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.mark.parametrize(("platform", "name"), [("darwin", "macOS"), ("win32", "Windows")])
def test_compile_is_refused_with_the_reason(platform: str, name: str):
    code = "import ingot\ntry: ingot.compile\nexcept ingot.IngotError as error: print(error)"
    done = run_as_if_on(platform, code)
    assert "bad-target" in done.stdout and f"this is {name}" in done.stdout, done.stderr
    assert "WSL 2" in done.stdout and not done.stderr


def test_the_command_line_has_no_traceback():
    code = "from ingot.cli.main import main\nmain(['doctor'])"
    done = run_as_if_on("darwin", code)
    assert done.returncode == 1 and "runs on Linux only, this is macOS" in done.stderr
    assert "Traceback" not in done.stderr


def test_linux_is_taken():
    done = run_as_if_on("linux", "import ingot; print(ingot.compile)")
    assert "function compile" in done.stdout, done.stderr

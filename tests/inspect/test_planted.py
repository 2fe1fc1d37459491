"""Planted bugs: `verify` names stage and node, and what it saved fails alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ingot.inspect.verify import verify
from tests.inspect.planted import BUGS

ROOT = Path(__file__).parents[2]


def python(*args: str | Path) -> subprocess.CompletedProcess:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *map(str, args)], capture_output=True, text=True, env=environ, timeout=300
    )


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found_and_fails_alone(name, tmp_path):
    bug, planted = BUGS[name], ("-m", "tests.inspect.planted", name)
    done = python(*planted, tmp_path / "found")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert not report["is_right"]
    assert report["stage"] == bug.stage and report["until"] in ("", bug.stage), done.stdout
    assert f"node '{bug.node}'" in report["node"], done.stdout
    assert report["value"] or report["fault"]
    assert report["reproduces"]
    if bug.stage == "codegen":  # of a kernel's code, the reproducer is that kernel alone
        before = (Path(report["reproducer"]).parent / "before.txt").read_text(encoding="utf-8")
        assert before.count("\nrun(") == 1 and "constant=" not in before
    alone = python(*planted, report["reproducer"])
    assert alone.returncode == 1, alone.stderr
    assert "WRONG" in alone.stdout or "[bad-program]" in alone.stdout
    if name == "constant":  # it is the bug that it shows: without, it passes
        right = python(report["reproducer"])
        assert right.returncode == 0, right.stdout + right.stderr


@pytest.mark.parametrize("name", sorted({bug.make: name for name, bug in BUGS.items()}.values()))
def test_the_models_are_right_without_a_bug(name, tmp_path):
    model, feeds = BUGS[name].make()
    report = verify(model, feeds, threads=2, jobs=1, save=tmp_path / "none")
    assert report.is_right, report
    assert not (tmp_path / "none").exists()


def test_programs_that_take_long_are_not_interpreted(tmp_path):
    """The finding is a range of stages then, and the reproducer runs all of them."""
    code = (
        "from ingot.inspect import stages; from tests.inspect import planted; "
        f"stages.SLOW_STEPS = 0; planted.main('constant', {str(tmp_path)!r})"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["stage"], report["until"]) == ("lower", "codegen") and report["reproduces"]
    assert "node 'decay'" in report["node"]

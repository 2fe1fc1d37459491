"""A back end from outside: examples/backends/systolic, installed from its wheel next to Ingot's.

Ingot does not know it. It has a scratchpad, an instruction, a pipeline and a device of its own, in
fewer than 400 lines, and every operator passes on it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ops.test_compiled import SAMPLED
from tests.small import small_model

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "backends" / "systolic"


def build_wheel(source: Path, made: Path) -> Path:
    code = f"from setuptools.build_meta import build_wheel; print(build_wheel({str(made)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=True
    )
    return made / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder with Ingot and the example, as pip installs their wheels."""
    sources, wheels = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheels")
    copied = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    shutil.copytree(ROOT / "ingot", sources / "own" / "ingot", ignore=copied)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources / "own")
    shutil.copytree(EXAMPLE, sources / "example", ignore=copied)
    made = [build_wheel(sources / name, wheels) for name in ("own", "example")]
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
         "--disable-pip-version-check", "--target", str(folder), *map(str, made)], check=True,
    )  # fmt: skip
    return folder


def run(installed: Path, *words: str, ok: bool = True) -> subprocess.CompletedProcess:
    """Python with the installed packages before this repository, whose tests it may import."""
    path = os.pathsep.join([str(installed), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-P", *words], cwd=installed, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert (done.returncode == 0) == ok, done.stdout + done.stderr
    return done


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "small.onnx"
    path.write_bytes(small_model().SerializeToString())
    return str(path)


def test_it_is_small():
    lines = sum(len(path.read_text().splitlines()) for path in EXAMPLE.rglob("*.py"))
    assert lines < 400


def test_every_operator_passes_on_it(installed: Path):
    found = json.loads(run(installed, "-m", "tests.backends.outside").stdout.splitlines()[-1])
    assert str(installed) in found["ingot"], "the wheel was to be used"
    assert found["passed"] == SAMPLED
    assert {"matmul", "conv", "softmax"} <= set(SAMPLED)


def test_its_matmul_uses_the_instruction_and_the_scratchpad(installed: Path, model: str):
    words = ("show", model, "--target", "systolic", "--shape", "batch=5")
    text = run(installed, "-m", "ingot.cli", *words).stdout
    assert "call(mma4," in text and 'alloc(f32[4, 4], "scratchpad")' in text
    stages = run(installed, "-m", "ingot.cli", "show", "--stages", "--target", "systolic").stdout
    assert "GEMMs through the scratchpad" in stages and "sink_reshapes" in stages


def test_a_buffer_over_capacity_is_an_error_that_names_it(installed: Path, model: str):
    words = ("compile", model, "--target", "systolic:100", "--shape", "batch=5", "--json")
    done = run(installed, "-m", "ingot.cli", *words, ok=False)
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "limit" and error["hint"]
    assert "scratchpad" in error["what"] and "64 bytes" in error["what"] and "100" in error["why"]
    assert "product" in error["where"], "the user's own node"


def test_a_plan_of_it_is_saved_and_run(installed: Path, model: str):
    code = (
        "import sys, numpy as np, ingot\n"
        "x = np.ones((3, 4), np.float32)\n"
        f"exe = ingot.compile({model!r}, 'systolic')\n"
        "exe.save('small.plan')\n"
        "again = ingot.load('small.plan')\n"
        "assert again.package.device == 'systolic'\n"
        "assert all((a == b).all() for a, b in zip(exe(x), again(x)))\n"
        f"np.testing.assert_allclose(exe(x)[0], ingot.compile({model!r})(x)[0], rtol=1e-6)\n"
    )
    run(installed, "-c", code)


def test_doctor_lists_it(installed: Path):
    findings = json.loads(run(installed, "-m", "ingot.cli", "doctor", "--json").stdout)["findings"]
    (row,) = (f for f in findings if f["section"] == "back ends" and f["name"] == "systolic")
    assert row["state"] == "ok" and "ingot-systolic" in row["value"]

"""The package as people install it: one pure-Python wheel, and importing it loads nothing heavy."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy, so that no build folder stays behind; without the network."""
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "ingot", source / "ingot", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    code = f"from setuptools.build_meta import build_wheel; build_wheel({str(made)!r})"
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:setuptools", "-c", code],
        cwd=source, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    (path,) = made.glob("*.whl")
    return path


def test_it_is_pure_python_and_whole(wheel: Path):
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    inside = {name for name in names if name.startswith("ingot/")}
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "ingot").rglob("*.py")}
    assert inside == {*modules, "ingot/py.typed"}
    others = {name.split("/", 1)[1] for name in names if not name.startswith("ingot/")}
    assert "licenses/LICENSE" in others and "entry_points.txt" in others


def test_its_metadata(wheel: Path):
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
    text = archive.read(name).decode()
    for line in ("License-Expression: Apache-2.0", "Requires-Python: >=3.11", "# Ingot"):
        assert line in text


def test_it_imports_without_the_repository(wheel: Path, tmp_path: Path):
    code = (
        "import sys, ingot; assert '.whl' in ingot.__file__, ingot.__file__;"
        "assert not {'onnx', 'torch', 'llvmlite'} & set(sys.modules)"
    )
    subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(wheel)}, check=True
    )

"""torch.compile finds the back end by name: where Ingot is installed, nothing else is imported."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ingot

ROOT = Path(ingot.__file__).parents[1]
CALL = """
f = torch.compile(lambda x: torch.relu(x) + 1, backend="ingot")
assert torch.equal(f(torch.ones(3)), torch.full((3,), 2.0))
assert "ingot" in torch.compiler.list_backends()
"""
IMPORTS = ["import torch", "import torch, ingot", "import torch, ingot.torch"]


def run(code: str, *path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT)))}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("imports", IMPORTS)
def test_the_back_end_by_its_name(imports, tmp_path):
    """With the metadata of an installation, made of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    group = project["entry-points"]["torch_dynamo_backends"]
    rows = "\n".join(f"{name} = {target}" for name, target in group.items())
    info = tmp_path / "ingot-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ingot\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[torch_dynamo_backends]\n{rows}\n")
    run(f"{imports}\n{CALL}", tmp_path)


def test_a_tree_that_is_not_installed():
    hide = "import importlib.metadata as m; m.entry_points = lambda **_: m.EntryPoints(())"
    run(f"{hide}\nimport torch, ingot.torch\n{CALL}")

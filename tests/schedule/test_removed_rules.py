"""Rules are separable: without one's files and rows, the others schedule its kernels, and no other
kernel changes. The long form runs the operator suite on the copies."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.schedule.removed_rule import REMOVALS, ROOT, copy_without, without_rows

CHILD = Path(__file__).with_name("removed_rule.py")


def compiled(package_root: Path, out: Path) -> dict[str, np.ndarray]:
    """What the child makes with the package of that folder."""
    environment = os.environ | {"PYTHONPATH": str(package_root), "INGOT_CACHE_DIR": "off"}
    subprocess.run([sys.executable, CHILD, out], check=True, env=environment, cwd=package_root)
    found = dict(np.load(out))
    assert Path(str(found["package"])) == package_root / "ingot"
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, np.ndarray]:
    return compiled(ROOT, tmp_path_factory.mktemp("whole") / "made.npz")


def kernels(found: dict[str, np.ndarray]) -> dict[str, set[tuple[str, ...]]]:
    """The kernels of each node of the model."""
    by_origin: dict[str, set[tuple[str, ...]]] = {}
    for line in str(found["rows"]).splitlines():
        origin, *kernel = line.split("\t")
        by_origin.setdefault(origin, set()).add(tuple(kernel))
    return by_origin


@pytest.mark.parametrize("name", REMOVALS)
def test_without_a_rule_only_its_kernels_change(name: str, whole, tmp_path: Path):
    made = compiled(copy_without(name, tmp_path / "copy"), tmp_path / "made.npz")
    before, after = kernels(whole), kernels(made)
    of_the_rule = {
        origin
        for origin, rows in before.items()
        if any(REMOVALS[name].algorithms & set(row) or name in row[:1] for row in rows)
    }
    assert before.keys() == after.keys()
    assert {origin for origin in before if before[origin] != after[origin]} == of_the_rule
    assert of_the_rule
    gone = {word for rows in after.values() for row in rows for word in row[2:]}
    assert not gone & REMOVALS[name].algorithms
    for key in (f"y{i}" for i in range(5)):
        np.testing.assert_allclose(made[key], whole[key], rtol=1e-3, atol=1e-4)


def test_rows_and_imports_go_and_the_rest_stays():
    source = "from a import left\nfrom b import right\nT = (\n    left,\n    right,\n)\n"
    assert without_rows(source, ("right",)) == "from a import left\nT = (\n    left,\n)\n"


@pytest.mark.long
@pytest.mark.parametrize("name", REMOVALS)
def test_without_a_rule_the_operator_suite_passes(name: str, tmp_path: Path):
    """For one target: rules ask targets for features, none has a rule of its own."""
    copy = copy_without(name, tmp_path / "copy")
    shutil.copytree(ROOT / "tests", copy / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    environment = os.environ | {"PYTHONPATH": str(copy)}
    suite = ["tests/ops/test_samples.py", "tests/ops/test_compiled.py"]
    chosen = ["-q", "-x", "-p", "no:cacheprovider", "-k", "not x86-64-v4"]
    words = [sys.executable, "-m", "pytest", *chosen, *suite]
    done = subprocess.run(words, cwd=copy, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]

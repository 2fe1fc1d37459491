"""The same model gives the same bytes in any process, whatever the seed of Python's hashes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODELS = ("residual_cnn", "transformer_block", "nonzero_gather")

SCRIPT = """
import hashlib, json, sys
from pathlib import Path
import ingot
from ingot.support.dump import Dump
from tests.models.build import HARD

digest = lambda data: hashlib.sha256(data).hexdigest()
found = {}
for name in sys.argv[2:]:
    folder = Path(sys.argv[1], name)
    built = ingot.compile(HARD[name]()[0], dump=Dump(str(folder)), jobs=2).package
    (module,) = built.modules
    for blob, data in module.blobs:
        found[f"{name}: {blob} of {len(module.blobs)}"] = digest(data)
    found[f"{name}: constants"] = digest(built.constants.tobytes())
    for fact in ("inputs", "outputs", "symbols", "arenas", "launches", "scratch_bytes"):
        found[f"{name}: {fact}"] = repr(getattr(built, fact))
print(json.dumps(found))
"""


def start(seed: int, folder: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder), *MODELS], cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(seed)},
    )  # fmt: skip


def built(process: subprocess.Popen, folder: Path) -> dict[str, str]:
    """Digests of what the process built, by name, and of every text it dumped."""
    out, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    found = json.loads(out)
    for file in folder.rglob("*.*"):
        found[str(file.relative_to(folder))] = hashlib.sha256(file.read_bytes()).hexdigest()
    return found


def test_objects_and_texts_do_not_depend_on_the_hash_seed(tmp_path: Path):
    folders = [tmp_path / "0", tmp_path / "12345"]
    running = [start(int(folder.name), folder) for folder in folders]
    first, second = (built(process, folder) for process, folder in zip(running, folders))
    stages = {name for name in first if name.startswith("residual_cnn/")}
    assert len(stages) >= 15, "the texts of all stages are compared"
    names = sorted(first.keys() | second.keys())
    assert [name for name in names if first.get(name) != second.get(name)] == []

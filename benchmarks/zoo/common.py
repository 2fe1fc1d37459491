"""Helpers of the zoo: an entry, seeded inputs, the folder of its files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

Feeds = dict[str, np.ndarray]
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Entry:
    """A model of the zoo: how its file is written, and its inputs at given dynamic dimensions."""

    name: str
    write: Callable[[Path], None]  # writes the ONNX file to the path given
    feeds: Callable[[Sizes], Feeds]
    sizes: Sequence[Sizes] = field(default_factory=lambda: ({},))  # benchmarks use the first
    source: str = ""
    dim_names: Mapping[str, str] = field(default_factory=dict)  # our dimension name → the file's
    write_torch: Callable[[Path], None] | None = None  # a torch.export file, for the first sizes

    def shapes(self, sizes: Sizes) -> dict[str, int]:
        """Sizes by the file's own dimension names, for `ingot.compile(shapes=…)`."""
        return {self.dim_names.get(name, name): size for name, size in sizes.items()}


def rng(key: int) -> np.random.Generator:
    return np.random.default_rng(1000 + key)


def normal(*shape: int, key: int = 0) -> np.ndarray:
    return rng(key).standard_normal(shape).astype(np.float32)


def zoo_folder(folder: str | Path | None = None) -> Path:
    """The folder of the model files: the one given, or one in the user's cache."""
    if folder is None:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(base) / "ingot-zoo"
    path = Path(folder)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def path_of(entry: Entry, folder: str | Path | None = None) -> Path:
    """The entry's file; writes it if it does not exist."""
    return _written(zoo_folder(folder) / f"{entry.name}.onnx", entry.write)


def torch_path_of(entry: Entry, folder: str | Path | None = None) -> Path | None:
    """The entry's torch.export file, if it has one; writes it if it does not exist."""
    if entry.write_torch is None:
        return None
    return _written(zoo_folder(folder) / f"{entry.name}.pt2", entry.write_torch)


def _written(path: Path, write: Callable[[Path], None]) -> Path:
    """Write atomically: a file that exists is complete."""
    if not path.exists():
        temporary = path.with_suffix(f".part{os.getpid()}{path.suffix}")
        write(temporary)
        temporary.replace(path)
    return path

"""What the zoo's makers share: an entry, seeded inputs, refilled weights, where files are kept."""

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
    """A model of the zoo: how its file is written, and inputs for it at given open sizes."""

    name: str
    write: Callable[[Path], None]  # writes the ONNX file to the path given
    feeds: Callable[[Sizes], Feeds]
    sizes: Sequence[Sizes] = field(default_factory=lambda: ({},))  # the first: what benchmarks take
    what: str = ""
    opens: Mapping[str, str] = field(default_factory=dict)  # our name of a size → the file's
    write_torch: Callable[[Path], None] | None = None  # a torch.export file, for the first sizes

    def shapes(self, sizes: Sizes) -> dict[str, int]:
        """Sizes by the names that the file gives them, for `ingot.compile(shapes=…)`."""
        return {self.opens.get(name, name): size for name, size in sizes.items()}


def rng(key: int) -> np.random.Generator:
    return np.random.default_rng(1000 + key)


def normal(*shape: int, key: int = 0) -> np.ndarray:
    return rng(key).standard_normal(shape).astype(np.float32)


def home(folder: str | Path | None = None) -> Path:
    """The folder of the model files: the one given, or one of the user's cache."""
    if folder is None:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(base) / "ingot-zoo"
    path = Path(folder)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def path_of(entry: Entry, folder: str | Path | None = None) -> Path:
    """The entry's file, written now if it is not there."""
    return _written(home(folder) / f"{entry.name}.onnx", entry.write)


def torch_path_of(entry: Entry, folder: str | Path | None = None) -> Path | None:
    """The same network as torch has it, if it came from there; written now if it is not there."""
    if entry.write_torch is None:
        return None
    return _written(home(folder) / f"{entry.name}.pt2", entry.write_torch)


def _written(path: Path, write: Callable[[Path], None]) -> Path:
    """Beside its place first: a file that is there is whole."""
    if not path.exists():
        part = path.with_suffix(f".part{os.getpid()}{path.suffix}")
        write(part)
        part.replace(path)
    return path

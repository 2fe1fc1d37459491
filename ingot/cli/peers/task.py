"""What every runtime is asked to load, and how arrays travel. Both ends of the pipe read this.

In: a `Task` as a JSON object, arrays in .npz files by position. Out: the same on the other side.
numpy's files know no bf16 or f8: such inputs travel as bytes and are given their type again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ingot import dtypes

SIDE = 1024
READ_BYTES = 256 << 20
WORK = {"product": 2 * SIDE**3, "reading": READ_BYTES}  # flops, bytes of one call of a yardstick


@dataclass(frozen=True)
class Task:
    model: str
    feeds: str  # a .npz, arrays by position
    names: tuple[str, ...]  # of the inputs
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    sizes: dict[str, int]  # what the open sizes are; told to every runtime unless is_open
    is_open: bool
    threads: int
    torch: str = ""  # the same model as a torch.export file
    file_sizes: dict[str, int] = field(default_factory=dict)  # by the names that the file gives

    @staticmethod
    def read(data: dict[str, Any]) -> Task:
        lists = {key: tuple(data[key]) for key in ("names", "dtypes")}
        shapes = tuple(map(tuple, data["shapes"]))
        return Task(**{**data, **lists, "shapes": shapes})

    def arrays(self) -> list[np.ndarray]:
        with np.load(self.feeds, allow_pickle=False) as data:
            return [
                data[str(i)].view(dtypes.of(dtype).numpy).reshape(shape)
                for i, (dtype, shape) in enumerate(zip(self.dtypes, self.shapes))
            ]

    def by_name(self) -> dict[str, np.ndarray]:
        return dict(zip(self.names, self.arrays()))


def save_feeds(file: Path, arrays: Iterable[np.ndarray]) -> None:
    flat = {str(i): np.ascontiguousarray(a).reshape(-1) for i, a in enumerate(arrays)}
    np.savez(file, **{name: a.view(np.uint8) for name, a in flat.items()})  # type: ignore[arg-type]


def save_answers(file: str, arrays: Iterable[np.ndarray]) -> None:
    """Answers are only compared, so types that numpy cannot save become wider."""
    saved = {str(i): _plain(np.asarray(a)) for i, a in enumerate(arrays)}
    np.savez(file, **saved)  # type: ignore[arg-type]


def read_answers(file: Path) -> list[np.ndarray]:
    with np.load(file, allow_pickle=False) as data:
        return [data[str(i)] for i in range(len(data.files))]


def _plain(array: np.ndarray) -> np.ndarray:
    return array if array.dtype.kind in "biuf" else array.astype(np.float64)

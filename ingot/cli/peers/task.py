"""What every runtime loads, and how arrays are passed to it. Both ends of the pipe import this.

In: a `Task` as a JSON object, arrays in .npz files by position. Out: the same in the other process.
.npz files have no bf16 or f8: inputs are passed as bytes and get their type back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ingot import dtypes

FMA_FLOPS = 1_536_000_000  # of a call of the FMA probe, all threads together
READ_BYTES = 256 << 20  # of the bandwidth probe: larger than any cache
WORK_PER_CALL = {"fma": FMA_FLOPS, "bandwidth": READ_BYTES}  # FLOPs, bytes


@dataclass(frozen=True)
class Task:
    model: str
    feeds: str  # a .npz, arrays by position
    names: tuple[str, ...]  # of the inputs
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    sizes: dict[str, int]  # values of the dynamic dimensions
    is_dynamic: bool  # False: every runtime specialises the model for `sizes`
    threads: int
    torch: str = ""  # the same model as a torch.export file
    file_sizes: dict[str, int] = field(default_factory=dict)  # `sizes` by the file's dim_params

    @staticmethod
    def read(data: dict[str, Any]) -> Task:
        lists = {key: tuple(data[key]) for key in ("names", "dtypes")}
        shapes = tuple(map(tuple, data["shapes"]))
        return Task(**{**data, **lists, "shapes": shapes})

    def arrays(self) -> list[np.ndarray]:
        with np.load(self.feeds, allow_pickle=False) as data:
            rows = zip(self.dtypes, self.shapes)
            return [_typed(data[str(i)], *row) for i, row in enumerate(rows)]

    def by_name(self) -> dict[str, np.ndarray]:
        return dict(zip(self.names, self.arrays()))


def save_feeds(file: Path, arrays: Iterable[np.ndarray]) -> None:
    flat = {str(i): np.ascontiguousarray(a).reshape(-1) for i, a in enumerate(arrays)}
    raw = {name: a.astype(str) if _is_text(a) else a.view(np.uint8) for name, a in flat.items()}
    np.savez(file, **raw)  # type: ignore[arg-type]


def save_outputs(file: str, arrays: Iterable[np.ndarray]) -> None:
    """Outputs are only compared, so types that .npz files lack are widened."""
    saved = {str(i): _plain(np.asarray(a)) for i, a in enumerate(arrays)}
    np.savez(file, **saved)  # type: ignore[arg-type]


def read_outputs(file: Path) -> list[np.ndarray]:
    with np.load(file, allow_pickle=False) as data:
        return [data[str(i)] for i in range(len(data.files))]


def _typed(data: np.ndarray, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    element = dtypes.of(dtype)
    return (data.astype(object) if element.is_string else data.view(element.numpy)).reshape(shape)


def _is_text(array: np.ndarray) -> bool:
    return array.dtype.kind in "OUT"


def _plain(array: np.ndarray) -> np.ndarray:
    if _is_text(array):
        return array.astype(str)
    return array if array.dtype.kind in "biuf" else array.astype(np.float64)

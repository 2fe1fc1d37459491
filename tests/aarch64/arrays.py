"""Arrays of any element type in one .npz file: bytes and a shape. No pickle, no compiler."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    stored = {}
    for name, array in arrays.items():
        stored[f"{name}.bytes"] = np.frombuffer(array.tobytes(), np.uint8)
        stored[f"{name}.shape"] = np.array(array.shape, np.int64)
    np.savez(path, **stored)


def read_arrays(path: Path, types: Mapping[str, np.dtype]) -> dict[str, np.ndarray]:
    """Writeable arrays: the native fast path takes no others."""
    with np.load(path) as file:
        return {
            name: file[f"{name}.bytes"].view(dtype).reshape(file[f"{name}.shape"])
            for name, dtype in types.items()
        }

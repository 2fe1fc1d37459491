"""Constants, kept outside the IR: digest → array. Graphs hold `ConstRef`s into a store.

Equal bytes are stored once. Arrays are read-only; a large one may be a view of a mapped file.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from ingot import dtypes
from ingot.graph.ir import ConstRef
from ingot.support.errors import IngotError


class ConstantStore:
    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}
        self.files: set[str] = set()  # beside the model, that constants were read from

    def add(self, array: np.ndarray) -> ConstRef:
        array = np.asarray(array)
        data = array if array.flags.c_contiguous else array.copy(order="C")
        dtype = dtypes.from_numpy(data.dtype)
        head = f"{dtype.name}{data.shape}".encode()
        digest = hashlib.blake2b(head, digest_size=12)
        digest.update(data.reshape(-1).view(np.uint8).data)
        ref = ConstRef(digest.hexdigest(), dtype.name, tuple(data.shape))
        if ref.digest not in self._arrays:
            view = data.view()
            view.flags.writeable = False
            self._arrays[ref.digest] = view
        return ref

    def get(self, ref: ConstRef) -> np.ndarray:
        try:
            return self._arrays[ref.digest]
        except KeyError:
            raise IngotError(
                "bad-graph",
                f"constant @{ref.digest} is not in the store",
                hint="an IR read from text needs the constants that were saved beside it",
            ) from None

    def __contains__(self, ref: ConstRef) -> bool:
        return ref.digest in self._arrays

    def __len__(self) -> int:
        return len(self._arrays)

    @property
    def total_bytes(self) -> int:
        return sum(array.nbytes for array in self._arrays.values())

    def save(self, path: Path) -> None:
        """All constants in one .npz, for a later start from a dumped IR."""
        raw = {
            f"{digest}:{dtypes.from_numpy(a.dtype).name}": a.view(_storage(a.dtype))
            for digest, a in self._arrays.items()
        }
        np.savez(path, **raw)  # type: ignore[arg-type]

    def load(self, path: Path) -> None:
        with np.load(path, allow_pickle=False) as data:
            for key in data.files:
                dtype = dtypes.of(key.partition(":")[2])
                self.add(data[key].view(dtype.numpy))


def _storage(dtype: np.dtype) -> np.dtype:
    """The integer type of the same width: .npz knows none of the extension types."""
    return dtype if dtype.kind in "fiub" else np.dtype(f"u{dtype.itemsize}")

"""Constants, kept outside the IR: digest → array. Graphs hold `ConstRef`s into a store.

Equal bytes are stored once. Arrays are read-only; a large one may be a view of a mapped file, and
is not kept in memory for having been looked at. A frugal store forgets what is not needed any more.
"""

from __future__ import annotations

import hashlib
import itertools
import mmap
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.graph.ir import ConstRef
from ingot.support.errors import IngotError

_PIECE_BYTES = 32 << 20
_AT_ONCE = 4
_TURNED = 512  # rows and columns of a tile


class ConstantStore:
    """`is_frugal`: `retain` and `move` forget; else constants stay for as long as the store."""

    def __init__(self, is_frugal: bool = False) -> None:
        self.is_frugal = is_frugal
        self._arrays: dict[str, np.ndarray] = {}
        self.files: set[str] = set()  # beside the model, that constants were read from

    def add(self, array: np.ndarray) -> ConstRef:
        array = np.asarray(array)
        data = array if array.flags.c_contiguous else _in_order(array)
        dtype = dtypes.from_numpy(data.dtype)
        head = f"{dtype.name}{data.shape}".encode()
        digest = hashlib.blake2b(head, digest_size=12)
        for part in _digests(data):
            digest.update(part)
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

    def release(self, ref: ConstRef) -> None:
        """A mapped constant that was read leaves memory; it is still in its file."""
        if (mapped := _mapping(self._arrays[ref.digest])) is not None:
            mapped.madvise(mmap.MADV_DONTNEED)

    def retain(self, refs: Iterable[ConstRef]) -> None:
        """Only these are still needed."""
        if self.is_frugal:
            kept = {ref.digest for ref in refs}
            self._arrays = {d: array for d, array in self._arrays.items() if d in kept}

    def move(self, ref: ConstRef, blob: np.ndarray, places: Iterable[int]) -> None:
        """Copy a constant's bytes to places in a blob; here it is not needed any more."""
        for start in places:
            for piece in _pieces(self.get(ref)):
                blob[start : start + piece.nbytes] = piece
                start += piece.nbytes
        if self.is_frugal:
            del self._arrays[ref.digest]

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


def _in_order(array: np.ndarray) -> np.ndarray:
    """A C-contiguous copy. Matrices that lie the other way round are turned by tiles: going along
    whole rows of one, each element of the other would be on a page of its own."""
    if array.ndim != 2:
        return array.copy(order="C")
    out, step = np.empty(array.shape, array.dtype), _TURNED
    for i, j in itertools.product(*(range(0, n, step) for n in array.shape)):
        out[i : i + step, j : j + step] = array[i : i + step, j : j + step]
    return out


def _digests(array: np.ndarray) -> Iterator[bytes]:
    """Of the array's pieces, some at a time side by side: Python's lock is free meanwhile. Those of
    a mapped file one by one, since each leaves memory before the next is read."""
    pieces = _pieces(array)
    if array.nbytes <= _PIECE_BYTES or _mapping(array) is not None:
        yield from map(_digest, pieces)
        return
    with ThreadPoolExecutor(_AT_ONCE) as crew:
        while batch := list(itertools.islice(pieces, _AT_ONCE)):
            yield from crew.map(_digest, batch)


def _digest(piece: np.ndarray) -> bytes:
    return hashlib.blake2b(piece.data).digest()


def _pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    """The array's bytes, some at a time. Those of a mapped file leave memory when they are done
    with: they are in the file, and reading a model must not take twice its size."""
    flat = array.reshape(-1).view(np.uint8)
    mapped = _mapping(array)
    for start in range(0, flat.nbytes, _PIECE_BYTES):
        yield flat[start : start + _PIECE_BYTES]
        if mapped is not None:
            mapped.madvise(mmap.MADV_DONTNEED)


def _mapping(array: np.ndarray) -> mmap.mmap | None:
    """The read-only file mapping an array looks into."""
    base: Any = array
    mode = ""
    while isinstance(base, np.ndarray):
        mode = base.mode if isinstance(base, np.memmap) else mode
        base = base.base
    return base if isinstance(base, mmap.mmap) and mode == "r" else None


def _storage(dtype: np.dtype) -> np.dtype:
    """The integer type of the same width: .npz knows none of the extension types."""
    return dtype if dtype.kind in "fiub" else np.dtype(f"u{dtype.itemsize}")

"""Constants, kept outside the IR: digest → array. Graphs hold `ConstRef`s into a store.

Equal bytes are stored once; a large constant that is another one in another order goes by the name
of that one and the order, and is made when its bytes are asked for. Arrays are read-only; a large
one may be a view of a mapped file, and is not kept in memory for having been looked at. A frugal
store forgets what is not needed any more.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import mmap
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.graph.ir import ConstRef
from ingot.support.errors import IngotError

_PIECE_BYTES = 32 << 20
_AT_ONCE = 4
_TURNED = 512  # rows and columns of a tile
_LARGE_BYTES = 1 << 20  # takes longer to look at than to name


@dataclass(frozen=True)
class Later:
    """A constant that is not made yet: `fill` writes it, out of its source, to an array that holds
    zeros. With the source's own elements, and zeros."""

    source: np.ndarray
    shape: tuple[int, ...]
    fill: Callable[[np.ndarray, np.ndarray], None]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.source.itemsize

    @property
    def dtype(self) -> np.dtype:
        return self.source.dtype

    def made(self) -> np.ndarray:
        out = np.zeros(self.shape, self.dtype)
        self.fill(self.source, out)
        return out


class ConstantStore:
    """`is_frugal`: `retain` and `move` forget; else constants stay for as long as the store."""

    def __init__(self, is_frugal: bool = False) -> None:
        self.is_frugal = is_frugal
        self._arrays: dict[str, np.ndarray | Later] = {}
        self.files: set[str] = set()  # beside the model, that constants were read from

    def add(self, array: np.ndarray) -> ConstRef:
        array = np.asarray(array)
        data = array if array.flags.c_contiguous else _in_order(array)
        dtype = dtypes.from_numpy(data.dtype)
        head = f"{dtype.name}{data.shape}".encode()
        digest = hashlib.blake2b(head, digest_size=12)
        for part in _digests(data):
            digest.update(part)
        return self._put(digest.hexdigest(), data)

    def derive(self, source: ConstRef, how: str, array: np.ndarray | Later) -> ConstRef:
        """Another constant's elements in an order that `how` says all about. A large one is not
        looked at: it may be a view, or not there yet."""
        if array.nbytes < _LARGE_BYTES:
            return self.add(array.made() if isinstance(array, Later) else array)
        name = f"{source.digest} {source.dtype}{source.shape} {how}".encode()
        return self._put(hashlib.blake2b(name, digest_size=12).hexdigest(), array)

    def _put(self, digest: str, array: np.ndarray | Later) -> ConstRef:
        if digest not in self._arrays:
            self._arrays[digest] = array if isinstance(array, Later) else _read_only(array)
        return ConstRef(digest, dtypes.from_numpy(array.dtype).name, tuple(array.shape))

    def get(self, ref: ConstRef) -> np.ndarray:
        found = self._arrays.get(ref.digest)
        if found is None:
            raise IngotError(
                "bad-graph",
                f"constant @{ref.digest} is not in the store",
                hint="an IR read from text needs the constants that were saved beside it",
            )
        if isinstance(found, Later):
            found = self._arrays[ref.digest] = _read_only(found.made())
        return found

    def retain(self, refs: Iterable[ConstRef]) -> None:
        """Only these are still needed."""
        if self.is_frugal:
            kept = {ref.digest for ref in refs}
            self._arrays = {d: array for d, array in self._arrays.items() if d in kept}

    def move(self, ref: ConstRef, blob: np.ndarray, places: Iterable[int]) -> None:
        """Copy a constant's bytes to places in a blob of zeros; here it is not needed any more."""
        found = self._arrays.get(ref.digest)
        for start in places:
            if isinstance(found, Later):
                out = blob[start : start + found.nbytes].view(found.dtype).reshape(found.shape)
                found.fill(found.source, out)
                _release(found.source)
            else:
                _copy(self.get(ref), blob, start)
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
        made = {d: a.made() if isinstance(a, Later) else a for d, a in self._arrays.items()}
        raw = {
            f"{digest}:{dtypes.from_numpy(a.dtype).name}": a.view(_storage(a.dtype))
            for digest, a in made.items()
        }
        np.savez(path, **raw)  # type: ignore[arg-type]

    def load(self, path: Path) -> None:
        with np.load(path, allow_pickle=False) as data:
            for key in data.files:
                dtype = dtypes.of(key.partition(":")[2])
                self._put(key.partition(":")[0], data[key].view(dtype.numpy))


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def _copy(array: np.ndarray, blob: np.ndarray, start: int) -> None:
    data = array if array.flags.c_contiguous else _in_order(array)
    for piece in _pieces(data):
        blob[start : start + piece.nbytes] = piece
        start += piece.nbytes


def _release(array: np.ndarray) -> None:
    """A mapped constant that was read leaves memory; it is still in its file."""
    if (mapped := _mapping(array)) is not None:
        mapped.madvise(mmap.MADV_DONTNEED)


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
    for start in range(0, flat.nbytes, _PIECE_BYTES):
        yield flat[start : start + _PIECE_BYTES]
        _release(array)


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

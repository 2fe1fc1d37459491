"""The constant store, outside the IR: digest → array. Graphs hold `ConstRef`s into it.

Equal bytes are stored once. A large transposed or packed constant is a LazyConstant: its digest
comes from its source and the transformation, and its bytes are computed on first use. Arrays are
read-only; a large one may be a view of a memory-mapped file, whose pages are released after each
read. With `drops_unused` the store frees constants that are no longer needed. A constant of strings
holds numbers into the store's table of strings.
"""

from __future__ import annotations

import hashlib
import itertools
import json
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
from ingot.strings import StringTable
from ingot.support.errors import IngotError

_PIECE_BYTES = 32 << 20  # hashed or copied at a time (heuristic)
_HASH_THREADS = 4  # threads that hash constants (heuristic)
_TRANSPOSE_TILE = 512  # rows and columns of a tile in a transposing copy (heuristic)
_STRINGS = "strings"  # the key of strings and maps in an .npz
_LENT_BYTES = 1 << 16  # smallest constant that is read where the module has it (heuristic)
_LARGE_BYTES = 1 << 20  # from here on a derived constant is lazy and not hashed (heuristic)


@dataclass(frozen=True)
class LazyConstant:
    """A constant computed on first use: `fill(source, out)` writes the source's elements into an
    array of zeros."""

    source: np.ndarray
    shape: tuple[int, ...]
    fill: Callable[[np.ndarray, np.ndarray], None]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.source.itemsize

    @property
    def dtype(self) -> np.dtype:
        return self.source.dtype

    def materialize(self) -> np.ndarray:
        out = np.zeros(self.shape, self.dtype)
        self.fill(self.source, out)
        return out


class ConstantStore:
    """`drops_unused`: `retain` and `move` free constants; else all live as long as the store."""

    def __init__(self, drops_unused: bool = False) -> None:
        self.drops_unused = drops_unused
        self._arrays: dict[str, np.ndarray | LazyConstant] = {}
        self.strings = StringTable()
        # what the border of a call makes of maps: inputs that are two vectors, `name.keys` and
        # `name.values`, and outputs whose columns have these labels, a map for each row
        self.map_inputs: set[str] = set()
        self.map_outputs: dict[str, tuple[str | int, ...]] = {}
        # how a PyTorch module is called (runtime/module_signature.py), and the first contents of
        # the states that the executable keeps, by the name of the input
        self.signature, self.initial = "", dict[str, np.ndarray]()
        # tensors of a module that the code may read where they are: the constant's digest → the
        # tensor's name; and those for which the program has an input: its name → the tensor's, and
        # whether no constant of the program depends on the contents
        self.lends, self.lent = False, dict[str, str]()
        self.borrowed: dict[str, tuple[str, bool]] = {}
        self._inspected: set[str] = set()
        self.files: set[str] = set()  # external data files that constants were read from

    def add(self, array: np.ndarray) -> ConstRef:
        """A constant; an array of str becomes numbers into the table of strings."""
        array = np.asarray(array)
        if array.dtype.kind in "OUT":
            array = self.strings.encode(array)
        data = array if array.flags.c_contiguous else _contiguous(array)
        dtype = dtypes.from_numpy(data.dtype)
        head = f"{dtype.name}{data.shape}".encode()
        digest = hashlib.blake2b(head, digest_size=12)
        for piece in _digests(data):
            digest.update(piece)
        return self._put(digest.hexdigest(), data)

    def lend(self, ref: ConstRef, array: np.ndarray, name: str) -> None:
        """The constant is this memory of a module's tensor, unless it is small, or its bytes are
        also those of something else, which would not change with the tensor."""
        found = self._arrays.get(ref.digest)
        is_large = self.lends and array.nbytes >= _LENT_BYTES
        if is_large and found is not None and _is_same_memory(found, array):
            self.lent.setdefault(ref.digest, name)

    def borrow(self, ref: ConstRef, buffer: str) -> bool:
        """Use a lent constant as an input of the program; False: it is none."""
        name = self.lent.get(ref.digest)
        if name is None:
            return False
        self.borrowed[buffer] = name, ref.digest not in self._inspected
        self.initial[buffer] = self._array(ref)
        return True

    def derive(self, source: ConstRef, how: str, array: np.ndarray | LazyConstant) -> ConstRef:
        """A constant made from another by a transformation that `how` identifies. A large one is
        not hashed: it may be a view, or lazy."""
        self._inspected.add(source.digest)
        if array.nbytes < _LARGE_BYTES:
            return self.add(array.materialize() if isinstance(array, LazyConstant) else array)
        name = f"{source.digest} {source.dtype}{source.shape} {how}".encode()
        return self._put(hashlib.blake2b(name, digest_size=12).hexdigest(), array)

    def _put(self, digest: str, array: np.ndarray | LazyConstant) -> ConstRef:
        if digest not in self._arrays:
            self._arrays[digest] = array if isinstance(array, LazyConstant) else _read_only(array)
        elif digest in self.lent and not _is_same_memory(self._arrays[digest], array):
            del self.lent[digest]
        return ConstRef(digest, dtypes.from_numpy(array.dtype).name, tuple(array.shape))

    def get(self, ref: ConstRef) -> np.ndarray:
        self._inspected.add(ref.digest)
        return self._array(ref)

    def _array(self, ref: ConstRef) -> np.ndarray:
        found = self._arrays.get(ref.digest)
        if found is None:
            raise IngotError(
                "bad-graph",
                f"constant @{ref.digest} is not in the store",
                hint="a text to continue from needs constants.npz in its folder; --dump writes it",
            )
        if isinstance(found, LazyConstant):
            found = self._arrays[ref.digest] = _read_only(found.materialize())
        return found

    def copy(self) -> ConstantStore:
        """A store with these constants and strings, of which another compilation may add and free
        its own. How the model is called stays behind."""
        made = ConstantStore()
        made._arrays, made.strings = dict(self._arrays), self.strings
        return made

    def retain(self, refs: Iterable[ConstRef]) -> None:
        """Free every constant but these, if the store drops unused ones."""
        if self.drops_unused:
            kept = {ref.digest for ref in refs}
            self._arrays = {d: array for d, array in self._arrays.items() if d in kept}

    def move(self, ref: ConstRef, blob: np.ndarray, offsets: Iterable[int]) -> None:
        """Copy a constant's bytes to offsets in a blob of zeros. The store may free it then."""
        found = self._arrays.get(ref.digest)
        for start in offsets:
            if isinstance(found, LazyConstant):
                out = blob[start : start + found.nbytes].view(found.dtype).reshape(found.shape)
                found.fill(found.source, out)
                _release(found.source)
            else:
                _copy(self.get(ref), blob, start)
        if self.drops_unused:
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
        items = self._arrays.items()
        arrays = {d: a.materialize() if isinstance(a, LazyConstant) else a for d, a in items}
        raw = {
            f"{digest}:{dtypes.from_numpy(a.dtype).name}": a.view(_storage(a.dtype))
            for digest, a in arrays.items()
        }
        about = [list(self.strings), sorted(self.map_inputs), self.map_outputs, self.signature]
        raw[_STRINGS] = np.frombuffer(json.dumps(about).encode(), np.uint8)
        np.savez(path, **raw)  # type: ignore[arg-type]

    def load(self, path: Path) -> None:
        with np.load(path, allow_pickle=False) as data:
            texts, maps, outputs, self.signature = json.loads(data[_STRINGS].tobytes())
            self.strings, self.map_inputs = StringTable(texts=texts[1:]), set(maps)
            self.map_outputs = {name: tuple(labels) for name, labels in outputs.items()}
            for key in data.files:
                if key == _STRINGS:
                    continue
                dtype = dtypes.of(key.partition(":")[2])
                self._put(key.partition(":")[0], data[key].view(dtype.numpy))


def _is_same_memory(a: np.ndarray | LazyConstant, b: np.ndarray | LazyConstant) -> bool:
    arrays = isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
    return arrays and a.ctypes.data == b.ctypes.data  # type: ignore[union-attr]


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def _copy(array: np.ndarray, blob: np.ndarray, start: int) -> None:
    data = array if array.flags.c_contiguous else _contiguous(array)
    for piece in _pieces(data):
        blob[start : start + piece.nbytes] = piece
        start += piece.nbytes


def _release(array: np.ndarray) -> None:
    """Release the pages of a memory-mapped constant; they can be read from the file again."""
    if (mapped := _mapping(array)) is not None:
        mapped.madvise(mmap.MADV_DONTNEED)


def _contiguous(array: np.ndarray) -> np.ndarray:
    """A C-contiguous copy. Matrices are transposed in tiles: along a whole row of the target, each
    element of the source would be on another page."""
    if array.ndim != 2:
        return array.copy(order="C")
    out, step = np.empty(array.shape, array.dtype), _TRANSPOSE_TILE
    for i, j in itertools.product(*(range(0, n, step) for n in array.shape)):
        out[i : i + step, j : j + step] = array[i : i + step, j : j + step]
    return out


def _digests(array: np.ndarray) -> Iterator[bytes]:
    """Digests of the array's pieces, computed in threads: hashing releases the GIL. Pieces of a
    mapped file are hashed one by one, each released before the next is read."""
    pieces = _pieces(array)
    if array.nbytes <= _PIECE_BYTES or _mapping(array) is not None:
        yield from map(_digest, pieces)
        return
    with ThreadPoolExecutor(_HASH_THREADS) as pool:
        while batch := list(itertools.islice(pieces, _HASH_THREADS)):
            yield from pool.map(_digest, batch)


def _digest(piece: np.ndarray) -> bytes:
    return hashlib.blake2b(piece.data).digest()


def _pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    """The array's bytes in pieces. Pages of a mapped file are released after use, so that reading
    a model does not take twice its size in memory."""
    flat = array.reshape(-1).view(np.uint8)
    for start in range(0, flat.nbytes, _PIECE_BYTES):
        yield flat[start : start + _PIECE_BYTES]
        _release(array)


def _mapping(array: np.ndarray) -> mmap.mmap | None:
    """The read-only file mapping that backs an array, if any."""
    base: Any = array
    mode = ""
    while isinstance(base, np.ndarray):
        mode = base.mode if isinstance(base, np.memmap) else mode
        base = base.base
    return base if isinstance(base, mmap.mmap) and mode == "r" else None


def _storage(dtype: np.dtype) -> np.dtype:
    """The integer type of the same width: .npz does not support extension types."""
    return dtype if dtype.kind in "fiub" else np.dtype(f"u{dtype.itemsize}")

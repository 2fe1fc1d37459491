"""The plan file: a package as one file, for `exe.save`, `ingot.load` and the model cache.

    header     64 bytes: magic, version, offset of the table, length of the file, a digest of these
               and of the table
    constants  page-aligned, so that they are used in the mapping without a copy
    blobs      the bytes of the modules, one blob after the other
    table      JSON: the package's tables, offset and length of each section, a checksum per 16 MiB

In: a Package. Out: bytes, and back. Nothing is pickled. A file is verified in full before it is
used: a damaged one is an error (`bad-model`), and the cache drops it. Constants are mapped
read-only, so all processes that run the model share their memory.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from ingot import dtypes
from ingot.runtime.package import Module, Package
from ingot.runtime.plan_table import package_of, table_of
from ingot.support.errors import IngotError

VERSION = 10  # of the format; raise it with every change
_MAGIC = b"INGOTPLN"
_FIELDS = struct.Struct("<8sQQQ")  # magic, version, offset of the table, length of the file
_DIGEST_BYTES = 32  # of the table's digest
HEAD_BYTES = _FIELDS.size + _DIGEST_BYTES
_PAGE, _LINE = 4096, 64  # bytes: alignment of the constants, of a blob
_CHUNK = 16 << 20  # bytes per checksum
_NOTHING = memoryview(b"")


@dataclass(frozen=True)
class Plan:
    package: Package
    about: dict[str, Any]  # the writer's metadata


def size_of(package: Package) -> int:
    """An estimate of the file's size in bytes."""
    code = sum(len(data) for module in package.modules for _, data in module.blobs)
    return 2 * _PAGE + package.constants.nbytes + code


def write(file: BinaryIO, package: Package, about: dict[str, Any] | None = None) -> None:
    """Write the plan to an empty file that is open for writing and seeking."""
    body = _BodyWriter(file)
    constants = body.add(package.constants.data, _PAGE)
    modules = [_add_module(body, module) for module in package.modules]
    initial = [_add_array(body, *row) for row in package.initial]
    body.add(_NOTHING, _LINE)
    table = {
        "package": table_of(package),
        "about": about or {},
        "constants": constants,
        "modules": modules,
        "initial": initial,
        "checksums": body.checksums(),
    }
    text = json.dumps(table, separators=(",", ":")).encode()
    file.write(text)
    fields = _FIELDS.pack(_MAGIC, VERSION, body.offset, body.offset + len(text))
    file.seek(0)
    file.write(fields + _digest(fields, text))


def is_plan(path: str) -> bool:
    """Does the file begin with the magic of a plan?"""
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def save(path: str, package: Package) -> None:
    """Write a plan atomically: a failure leaves the old file, or none."""
    temporary = f"{path}.{os.urandom(6).hex()}.tmp"
    try:
        with open(temporary, "xb") as file:
            write(file, package)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            what, why = "the plan file cannot be written", error.strerror or str(error)
            hint = "choose a path in an existing, writeable folder with enough space"
            raise IngotError("bad-option", what, where=path, why=why, hint=hint) from error
        raise


def read(path: str) -> Plan:
    """The plan in a file; IngotError (bad-model) if it is no plan file or is damaged."""
    data = _map(path)
    table = _table(data, path)
    try:
        if _checksums(data, _table_offset(data)) != table["checksums"]:
            raise _error(path, "it is damaged: a checksum does not match")
        modules = tuple(_module(data, row) for row in table["modules"])
        initial = tuple(_array(data, row) for row in table["initial"])
        mapped = _constants(data, table)
        return Plan(package_of(table["package"], modules, mapped, initial), table["about"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise _error(path, f"its table is invalid: {error!r}") from error


def read_about(path: str) -> dict[str, Any]:
    """The plan's metadata; only header and table are read."""
    return _table(_map(path), path)["about"]


def constants(path: str) -> np.ndarray:
    """The constants of a plan that was just written: mapped, without verifying the checksums."""
    data = _map(path)
    return _constants(data, _table(data, path))


def _add_module(body: _BodyWriter, module: Module) -> list[Any]:
    blobs = [[name, *body.add(memoryview(data), _LINE)] for name, data in module.blobs]
    return [module.device, module.kind, blobs]


def _module(data: mmap.mmap, row: list[Any]) -> Module:
    device, kind, blobs = row
    return Module(device, kind, tuple((name, data[at : at + size]) for name, at, size in blobs))


def _add_array(body: _BodyWriter, name: str, array: np.ndarray) -> list[Any]:
    """One of zeros, as a fresh KV cache, takes no room."""
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    dtype = dtypes.from_numpy(array.dtype).name
    return [name, dtype, list(array.shape), *body.add(raw.data if raw.any() else _NOTHING, _LINE)]


def _array(data: mmap.mmap, row: list[Any]) -> tuple[str, np.ndarray]:
    name, dtype, shape, at, size = row
    kind = dtypes.of(dtype).numpy
    if not size:
        return name, np.zeros(shape, kind)
    return name, np.frombuffer(data, np.uint8, size, at).view(kind).reshape(shape)


def _constants(data: mmap.mmap, table: dict[str, Any]) -> np.ndarray:
    at, size = table["constants"]
    return np.frombuffer(data, np.uint8, size, at)


class _BodyWriter:
    """Writes the sections between header and table, and computes a checksum per chunk."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self.offset = HEAD_BYTES
        self._sums: list[int] = []
        self._sum, self._filled = 0, 0
        file.seek(HEAD_BYTES)

    def add(self, data: memoryview, align: int) -> list[int]:
        """Write a section; returns its [offset, length]."""
        self._write(memoryview(bytes(-self.offset % align)))
        start = self.offset
        self._write(data)
        return [start, len(data)]

    def _write(self, data: memoryview) -> None:
        while data:
            block = data[: _CHUNK - self._filled]
            self._file.write(block)
            self._sum = zlib.crc32(block, self._sum)
            self.offset, self._filled = self.offset + len(block), self._filled + len(block)
            if self._filled == _CHUNK:
                self._sums.append(self._sum)
                self._sum, self._filled = 0, 0
            data = data[len(block) :]

    def checksums(self) -> list[int]:
        return [*self._sums, self._sum] if self._filled else list(self._sums)


def _map(path: str) -> mmap.mmap:
    with open(path, "rb") as file:
        try:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty file cannot be mapped
            raise _error(path, "it is empty") from None


def _table_offset(data: mmap.mmap) -> int:
    return _FIELDS.unpack_from(data)[2]


def _table(data: mmap.mmap, path: str) -> dict[str, Any]:
    """The table of a file, after verifying header and table."""
    if len(data) < HEAD_BYTES or data[: len(_MAGIC)] != _MAGIC:
        raise _error(path, "it is not a plan file", "use ingot.compile for a model file")
    _, version, offset, length = _FIELDS.unpack_from(data)
    if length != len(data) or not HEAD_BYTES <= offset <= length:
        raise _error(path, f"it has {len(data)} bytes, but its header states {length}")
    text = data[offset:length]
    if data[_FIELDS.size : HEAD_BYTES] != _digest(data[: _FIELDS.size], text):
        raise _error(path, "it is damaged: its digest does not match")
    if version != VERSION:
        hint = "compile the model again"
        raise _error(path, f"it has version {version}, this Ingot reads version {VERSION}", hint)
    return json.loads(text)


def _digest(fields: bytes, table: bytes) -> bytes:
    return hashlib.blake2b(fields + table, digest_size=_DIGEST_BYTES).digest()


def _checksums(data: mmap.mmap, end: int) -> list[int]:
    with memoryview(data) as view:
        starts = range(HEAD_BYTES, end, _CHUNK)
        return [zlib.crc32(view[at : min(at + _CHUNK, end)]) for at in starts]


def _error(path: str, why: str, hint: str = "") -> IngotError:
    return IngotError("bad-model", "the plan file cannot be used", where=path, why=why, hint=hint)

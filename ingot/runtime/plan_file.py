"""A package as one file: what `exe.save` writes, `ingot.load` reads and the model cache keeps.

    header     64 bytes: magic, version, where the table is, the length, a digest of all this and
               of the table
    constants  from the first page on, so that they are used where they are mapped
    objects    code, one after the other
    table      JSON: the package's tables, where the parts lie, and a checksum of every 16 MiB

In: a Package. Out: bytes, and back. Nothing is pickled. A file is checked in full before anything
in it is used: a damaged one is an error (`bad-model`), a cache drops it. Constants are mapped
read-only, so all processes that run the model share them.
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

from ingot.runtime.package import Package
from ingot.runtime.plan_table import package_of, table_of
from ingot.support.errors import IngotError

VERSION = 3
_MAGIC = b"INGOTPLN"
_FACTS = struct.Struct("<8sQQQ")  # magic, version, table's place, file's length
_DIGEST_BYTES = 32
HEAD_BYTES = _FACTS.size + _DIGEST_BYTES
_PAGE, _LINE = 4096, 64
_CHUNK = 16 << 20


@dataclass(frozen=True)
class Plan:
    package: Package
    about: dict[str, Any]  # whatever the writer wanted to say beside it


def size_of(package: Package) -> int:
    """About how large the file will be."""
    code = sum(map(len, package.kernel_objects)) + len(package.entry_object)
    return 2 * _PAGE + package.constants.nbytes + code + len(package.support_object)


def write(file: BinaryIO, package: Package, about: dict[str, Any] | None = None) -> None:
    """Write the plan to a file opened for writing and seeking, which is empty."""
    body = _Body(file)
    constants = body.put(package.constants.data, _PAGE)
    objects = [*package.kernel_objects, package.entry_object, package.support_object]
    code = [body.put(memoryview(data), _LINE) for data in objects]
    body.put(memoryview(b""), _LINE)
    table = {
        "package": table_of(package),
        "about": about or {},
        "constants": constants,
        "objects": code,
        "checksums": body.checksums(),
    }
    text = json.dumps(table, separators=(",", ":")).encode()
    file.write(text)
    facts = _FACTS.pack(_MAGIC, VERSION, body.place, body.place + len(text))
    file.seek(0)
    file.write(facts + _digest(facts, text))


def is_plan(path: str) -> bool:
    """Does the file begin as a plan does?"""
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def save(path: str, package: Package) -> None:
    """Write a plan for good: whatever happens, there is the whole file or what was there before."""
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
            hint = "a path in a folder that exists, may be written and has room"
            raise IngotError("bad-option", what, where=path, why=why, hint=hint) from error
        raise


def read(path: str) -> Plan:
    """The plan in a file; IngotError (bad-model) if it is none, or is damaged."""
    data = _map(path)
    table = _table(data, path)
    try:
        if _checksums(data, _table_place(data)) != table["checksums"]:
            raise _refuse(path, "it is damaged: a checksum does not fit")
        *kernels, entry, support = (data[at : at + size] for at, size in table["objects"])
        shared = _constants(data, table)
        return Plan(package_of(table["package"], kernels, entry, support, shared), table["about"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise _refuse(path, f"its table is not understood: {error!r}") from error


def read_about(path: str) -> dict[str, Any]:
    """What the writer said about the plan; only header and table are read."""
    return _table(_map(path), path)["about"]


def constants(path: str) -> np.ndarray:
    """The constants of a plan that was just written: mapped, and not read to be checked."""
    data = _map(path)
    return _constants(data, _table(data, path))


def _constants(data: mmap.mmap, table: dict[str, Any]) -> np.ndarray:
    at, size = table["constants"]
    return np.frombuffer(data, np.uint8, size, at)


class _Body:
    """Writes the parts between header and table, and sums them up chunk by chunk."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self.place = HEAD_BYTES
        self._sums: list[int] = []
        self._sum, self._filled = 0, 0
        file.seek(HEAD_BYTES)

    def put(self, data: memoryview, align: int) -> list[int]:
        """[place, length] of the part."""
        self._write(memoryview(bytes(-self.place % align)))
        start = self.place
        self._write(data)
        return [start, len(data)]

    def _write(self, data: memoryview) -> None:
        while data:
            part = data[: _CHUNK - self._filled]
            self._file.write(part)
            self._sum = zlib.crc32(part, self._sum)
            self.place, self._filled = self.place + len(part), self._filled + len(part)
            if self._filled == _CHUNK:
                self._sums.append(self._sum)
                self._sum, self._filled = 0, 0
            data = data[len(part) :]

    def checksums(self) -> list[int]:
        return [*self._sums, self._sum] if self._filled else list(self._sums)


def _map(path: str) -> mmap.mmap:
    with open(path, "rb") as file:
        try:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty file cannot be mapped
            raise _refuse(path, "it is empty") from None


def _table_place(data: mmap.mmap) -> int:
    return _FACTS.unpack_from(data)[2]


def _table(data: mmap.mmap, path: str) -> dict[str, Any]:
    """The table of a file whose header and table are whole."""
    if len(data) < HEAD_BYTES or data[: len(_MAGIC)] != _MAGIC:
        raise _refuse(path, "it is no plan file", "ingot.compile takes models")
    _, version, place, length = _FACTS.unpack_from(data)
    if length != len(data) or not HEAD_BYTES <= place <= length:
        raise _refuse(path, f"it has {len(data)} bytes, and its header says {length}")
    text = data[place:length]
    if data[_FACTS.size : HEAD_BYTES] != _digest(data[: _FACTS.size], text):
        raise _refuse(path, "it is damaged: its digest does not fit")
    if version != VERSION:
        hint = "compile the model again"
        raise _refuse(path, f"it has version {version}, this Ingot reads version {VERSION}", hint)
    return json.loads(text)


def _digest(facts: bytes, table: bytes) -> bytes:
    return hashlib.blake2b(facts + table, digest_size=_DIGEST_BYTES).digest()


def _checksums(data: mmap.mmap, end: int) -> list[int]:
    with memoryview(data) as view:
        starts = range(HEAD_BYTES, end, _CHUNK)
        return [zlib.crc32(view[at : min(at + _CHUNK, end)]) for at in starts]


def _refuse(path: str, why: str, hint: str = "") -> IngotError:
    return IngotError("bad-model", "the plan file cannot be used", where=path, why=why, hint=hint)

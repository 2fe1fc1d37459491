"""The digest of a model's files, for the model cache. In: a path or bytes. Out: SHA-256.

The digest of a large file is kept with the file's size, timestamps and inode, so that an unchanged
file is read once. Called by importers and by the cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import dataclass
from typing import Any

from ingot.support.cache_folder import open_folder

_READ_BYTES = 1 << 20  # per read while hashing
_SMALL_BYTES = 1 << 20  # bytes: hashing a smaller file is faster than looking up its digest
_SETTLED_S = 2.0  # seconds: a file changed more recently may change again with the same timestamp


@dataclass(frozen=True)
class ModelIdentity:
    """A digest of a model's content, and the folder of its external data, if it may have any."""

    digest: str
    folder: str | None = None


def identity_of(model: Any) -> ModelIdentity | None:
    """Of a model that is a file or bytes; None if it is neither or cannot be read."""
    match model:
        case bytes() | bytearray() | memoryview():
            return ModelIdentity(hashlib.sha256(model).hexdigest())
        case str() | os.PathLike():
            try:
                digest = file_digest(os.fspath(model))
            except OSError:
                return None  # the importer reports the error
            return ModelIdentity(digest, os.path.dirname(os.path.abspath(model)))
    return None


def file_digest(path: str) -> str:
    """SHA-256 of a file, cached while the file's size, timestamps and inode are unchanged."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        folder = open_folder("files") if status.st_size > _SMALL_BYTES else None
        if folder is None:
            return _digest(file)
        stamp = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
        key = hashlib.blake2b(os.path.abspath(path).encode(), digest_size=20).hexdigest()
        known = json.loads(folder.get(key) or b"{}")
        if known.get("stamp") == stamp:
            return known["sha256"]
        digest = _digest(file)
        if time.time() - max(status.st_mtime, status.st_ctime) > _SETTLED_S:
            folder.put(key, json.dumps({"stamp": stamp, "sha256": digest}).encode())
        return digest


def _digest(file: Any) -> str:
    digest = hashlib.sha256()
    while data := file.read(_READ_BYTES):
        digest.update(data)
    return digest.hexdigest()

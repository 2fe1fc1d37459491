"""An on-disk cache that many processes share. In: keys and bytes. Out: complete files.

    folder = open_folder("kernels")        None where caches are off or the folder is not safe
    folder.put(key, data)                  folder.get(key)      small entries with a checksum
    folder.store(key, size, write)         folder.find(key)     files with their own checksum

An entry is written under a temporary name and renamed, so that a reader sees all of it or nothing;
of two writers the last one wins. The writer holds a lock on its temporary file: a file without a
lock was left by a process that died, and is removed. Entries are verified when they are read, so
nothing is fsynced. An I/O error is a warning, once, and never an exception.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import struct
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

from ingot.support import options

KINDS = ("files", "kernels", "models")
_HEAD = struct.Struct("<8sQ32s")  # header of a small entry: magic, length and digest of the data
_MAGIC = b"INGOTENT"
_TEMPORARY = ".tmp-"
_GRACE_S = 60.0  # seconds: a younger temporary file may have a writer that has not locked it yet
_warned: set[str] = set()
_written_bytes: dict[str, int] = {}  # by root: since this process last evicted entries


class CacheWarning(UserWarning):
    """The cache could not be used; compilation went on without it."""


@dataclass(frozen=True)
class Entry:
    kind: str
    path: str
    size_bytes: int
    used_at: float  # seconds since the epoch


@dataclass(frozen=True)
class CacheFolder:
    """One kind of entries in the cache at `root`."""

    root: str
    kind: str

    def path(self, key: str) -> str:
        return os.path.join(self.root, self.kind, key)

    def find(self, key: str) -> str | None:
        """The path of an entry, marked as used for LRU eviction; None if there is none."""
        path = self.path(key)
        try:
            os.utime(path)
        except FileNotFoundError:
            return None
        except OSError:  # a read-only folder: its entries are valid
            return path if os.path.exists(path) else None
        return path

    def get(self, key: str) -> bytes | None:
        """The data of an entry; a damaged entry is dropped and is a miss."""
        path = self.find(key)
        if path is None:
            return None
        try:
            with open(path, "rb") as file:
                head, data = file.read(_HEAD.size), file.read()
        except OSError:
            return None
        if head != _head(data):
            self.drop(key)
            return None
        return data

    def put(self, key: str, data: bytes) -> None:
        whole = _head(data) + data
        self.store(key, len(whole), lambda file: file.write(whole))

    def drop(self, key: str) -> None:
        with suppress(OSError):
            os.unlink(self.path(key))

    def store(self, key: str, size_bytes: int, write: Callable[[BinaryIO], object]) -> str | None:
        """Make an entry of what `write` writes, about `size_bytes`; its path, or None where it does
        not fit or cannot be written."""
        if size_bytes > options.current().cache_limit_bytes:
            return None  # it would evict every other entry, and then itself
        path = self.path(key)
        temporary = os.path.join(self.root, self.kind, f"{_TEMPORARY}{os.urandom(8).hex()}")
        try:
            os.makedirs(self.root, mode=0o700, exist_ok=True)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            size = _write_and_rename(temporary, path, write)
        except OSError as error:
            _warn(self.root, f"the cache in {self.root} cannot be written: {error.strerror}")
            return None
        self._count_written(size)
        return path

    def _count_written(self, size: int) -> None:
        """Evict at this process's first entry, then after each 1/16 of the limit written."""
        limit = options.current().cache_limit_bytes
        written = _written_bytes.get(self.root, limit) + size
        if written > limit // 16:
            trim(self.root, limit)
            written = 0
        _written_bytes[self.root] = written


def _head(data: bytes) -> bytes:
    return _HEAD.pack(_MAGIC, len(data), hashlib.blake2b(data, digest_size=32).digest())


def open_folder(kind: str) -> CacheFolder | None:
    """The cache of one kind; None where caching is off or other users can write to the folder."""
    root = options.cache_folder()
    if root is None:
        return None
    try:
        _check_owner(root)
    except FileNotFoundError:
        pass  # created with the first entry
    except OSError as error:
        _warn(root, f"the cache in {root} is not used: {error.strerror}")
        return None
    return CacheFolder(root, kind)


def entries(root: str) -> list[Entry]:
    """Everything in the cache, least recently used first."""
    found = []
    for kind, item in _files(root):
        with suppress(OSError):  # another process may have removed it
            if not item.name.startswith(_TEMPORARY):
                status = item.stat()
                found.append(Entry(kind, item.path, status.st_size, status.st_mtime))
    return sorted(found, key=lambda entry: (entry.used_at, entry.path))


def trim(root: str, limit: int) -> int:
    """Evict least recently used entries down to `limit` bytes; the bytes freed."""
    sweep(root)
    present = entries(root)
    total = sum(entry.size_bytes for entry in present)
    freed = 0
    for entry in present:
        if total - freed <= limit:
            break
        with suppress(OSError):
            os.unlink(entry.path)
            freed += entry.size_bytes
    return freed


def sweep(root: str, grace_s: float = _GRACE_S) -> int:
    """Remove temporary files that no live process writes; their number."""
    removed = 0
    for _, item in _files(root):
        with suppress(OSError):
            if item.name.startswith(_TEMPORARY) and time.time() - item.stat().st_mtime >= grace_s:
                removed += _remove_unlocked(item.path)
    return removed


def _files(root: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    for kind in KINDS:
        try:
            with os.scandir(os.path.join(root, kind)) as items:
                yield from ((kind, item) for item in items)
        except OSError:
            continue


def _remove_unlocked(path: str) -> bool:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _write_and_rename(temporary: str, path: str, write: Callable[[BinaryIO], object]) -> int:
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "r+b") as file:
            with suppress(OSError):  # a file system without locks: only sweep() needs them
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            write(file)
            file.flush()
            size = os.fstat(descriptor).st_size
            os.rename(temporary, path)  # while the lock is held
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    return size


def _check_owner(root: str) -> None:
    """Cached objects are executed: refuse a folder that other users can write to."""
    status = os.stat(root)
    if status.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "it belongs to another user")
    if status.st_mode & 0o022:
        raise OSError(errno.EPERM, "other users may write to it (chmod go-w)")


def _warn(root: str, text: str) -> None:
    """Warn once per folder, not once per kernel."""
    if root not in _warned:
        _warned.add(root)
        hint = "; set INGOT_CACHE_DIR to another folder, or to off"
        warnings.warn(text + hint, CacheWarning, stacklevel=2)

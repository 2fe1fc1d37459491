"""A folder of cache entries that many processes share. In: keys and bytes. Out: files, whole ones.

    folder = open_folder("kernels")        None where caches are off or the folder is not safe
    folder.put(key, data)                  folder.get(key)      small entries, checked here
    folder.store(key, size, write)         folder.find(key)     files that check themselves

An entry is written under a temporary name and renamed, so a reader sees all of it or nothing, and
of two writers the last one wins. The writer holds a lock on its temporary file: one without a lock
was left by a process that died, and is swept. Entries are checked when they are read, so nothing is
fsynced. A disk that refuses is a warning, once, and never an error.
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

from ingot.support import knobs

KINDS = ("files", "kernels", "models")
_HEAD = struct.Struct("<8sQ32s")  # of a small entry: magic, length and digest of the rest
_MAGIC = b"INGOTENT"
_TEMPORARY = ".tmp-"
_GRACE_S = 60.0  # a temporary file this young may have a writer that has not locked it yet
_warned: set[str] = set()
_written_bytes: dict[str, int] = {}  # by root: since this process last trimmed it


class CacheWarning(UserWarning):
    """The cache could not be used; what was asked for is done without it."""


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
        """The path of an entry, which now counts as used; None if there is none."""
        path = self.path(key)
        try:
            os.utime(path)
        except FileNotFoundError:
            return None
        except OSError:  # a folder that may only be read: its entries are as good
            return path if os.path.exists(path) else None
        return path

    def get(self, key: str) -> bytes | None:
        """What was put; a damaged entry is dropped, as if it had never been."""
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
        not fit or the disk refused."""
        if size_bytes > knobs.current().cache_limit_bytes:
            return None  # it would push out everything else, and then itself
        path = self.path(key)
        temporary = os.path.join(self.root, self.kind, f"{_TEMPORARY}{os.urandom(8).hex()}")
        try:
            os.makedirs(self.root, mode=0o700, exist_ok=True)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            size = _write_and_rename(temporary, path, write)
        except OSError as error:
            _warn(self.root, f"the cache in {self.root} cannot be written: {error.strerror}")
            return None
        self._note(size)
        return path

    def _note(self, size: int) -> None:
        """Look at the whole cache at this process's first entry, and then now and again."""
        limit = knobs.current().cache_limit_bytes
        written = _written_bytes.get(self.root, limit) + size
        if written > limit // 16:
            trim(self.root, limit)
            written = 0
        _written_bytes[self.root] = written


def _head(data: bytes) -> bytes:
    return _HEAD.pack(_MAGIC, len(data), hashlib.blake2b(data, digest_size=32).digest())


def open_folder(kind: str) -> CacheFolder | None:
    """The entries of one kind; None where caches are off, or where others could plant code."""
    root = knobs.cache_folder()
    if root is None:
        return None
    try:
        _trust(root)
    except FileNotFoundError:
        pass  # it is made with the first entry
    except OSError as error:
        _warn(root, f"the cache in {root} is not used: {error.strerror}")
        return None
    return CacheFolder(root, kind)


def entries(root: str) -> list[Entry]:
    """Everything in the cache, least recently used first."""
    found = []
    for kind, item in _files(root):
        with suppress(OSError):  # another process may have dropped it meanwhile
            if not item.name.startswith(_TEMPORARY):
                status = item.stat()
                found.append(Entry(kind, item.path, status.st_size, status.st_mtime))
    return sorted(found, key=lambda entry: (entry.used_at, entry.path))


def trim(root: str, limit: int) -> int:
    """Drop what was not used for longest until there is room for more; bytes that were freed."""
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
    """Remove temporary files that no living process writes; how many there were."""
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
            with suppress(OSError):  # a file system without locks: only sweeping needs them
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            write(file)
            file.flush()
            size = os.fstat(descriptor).st_size
            os.rename(temporary, path)  # before the lock goes with the file
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    return size


def _trust(root: str) -> None:
    """Objects are run: a folder in which others can write is theirs, not ours."""
    status = os.stat(root)
    if status.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "it belongs to another user")
    if status.st_mode & 0o022:
        raise OSError(errno.EPERM, "other users may write to it (chmod go-w)")


def _warn(root: str, text: str) -> None:
    """Once for each folder: a model has hundreds of kernels."""
    if root not in _warned:
        _warned.add(root)
        hint = "; set INGOT_CACHE_DIR to another folder, or to off"
        warnings.warn(text + hint, CacheWarning, stacklevel=2)

"""The model cache: from a model file and options to everything the runtime needs. No compiler here.

    request = cache.request(model, options)    what was asked for, as a key; None: cannot be cached
    cache.lookup(request)                      a Package, or None
    cache.keep(request, package, files)        the same package, its constants shared and mapped

    cache.size()   cache.clear()   cache.why(model, options)    for people: `ingot cache …`

An entry is a plan file (runtime/plan_file.py). Its key holds the digest of the model file, the
options, Ingot's source, the libraries' versions, the processor and the knobs that change code; the
files with outside data are known from the entry, and compared with what it was made from.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ingot.runtime import plan_file
from ingot.runtime.package import Package
from ingot.runtime.pool import usable_cores
from ingot.support import cache_folder, identity, knobs
from ingot.support.cache_folder import open_folder
from ingot.support.errors import IngotError

_READ_BYTES = 1 << 20
_SMALL_BYTES = 1 << 20  # digested faster than looked up
_SETTLED_S = 2.0  # a file that changed this recently may change again within one tick of its clock


@dataclass(frozen=True)
class Request:
    """`parts` is all that an entry depends on, by name; `folder` is the model's own."""

    parts: dict[str, Any]
    folder: str | None

    @property
    def key(self) -> str:
        text = json.dumps(self.parts, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


def request(model: Any, options: Mapping[str, Any]) -> Request | None:
    """`options` are those that change the package; None if caches are off or it is no file."""
    if knobs.cache_folder() is None:
        return None
    if isinstance(model, bytes | bytearray | memoryview):
        return Request(_parts(hashlib.sha256(model).hexdigest(), options), None)
    if not isinstance(model, str | os.PathLike):
        return None
    try:
        digest = file_digest(os.fspath(model))
    except OSError:
        return None  # the front end will say what is wrong with it
    return Request(_parts(digest, options), os.path.dirname(os.path.abspath(model)))


def lookup(request: Request) -> Package | None:
    """What an earlier compilation made of the same; a damaged entry is dropped."""
    folder = open_folder("models")
    path = folder.find(request.key) if folder else None
    if folder is None or path is None:
        return None
    try:
        plan = plan_file.read(path)
    except (IngotError, OSError):
        folder.drop(request.key)
        return None
    return plan.package if not _changed_files(plan.about, request.folder) else None


def keep(request: Request, package: Package, files: Iterable[str]) -> Package:
    """Make an entry; the package returned has its constants mapped from it where that is so."""
    folder = open_folder("models")
    if folder is None:
        return package
    try:
        outside = {name: file_digest(os.path.join(request.folder or "", name)) for name in files}
    except OSError:  # gone while we compiled
        return package
    about = {"parts": request.parts, "files": outside}
    path = folder.store(
        request.key,
        plan_file.size_of(package),
        lambda file: plan_file.write(file, package, about),
    )
    try:
        return package if path is None else replace(package, constants=plan_file.constants(path))
    except (IngotError, OSError):  # dropped again by another process
        return package


def _parts(digest: str, options: Mapping[str, Any]) -> dict[str, Any]:
    parts = {
        "model": digest,
        **options,
        "plan format": plan_file.VERSION,
        "ingot": identity.source_digest(),
        **dict(identity.library_versions()),
        "processor": identity.processor(),
        "processor caches": identity.cpu_caches(),
        "cores": usable_cores(),
        **{f"INGOT_{name.upper()}": value for name, value in knobs.fingerprint()},
    }
    return json.loads(
        json.dumps(parts, sort_keys=True, default=repr)
    )  # as an entry's own come back


# --- files ------------------------------------------------------------------------------------


def file_digest(path: str) -> str:
    """SHA-256 of a file, remembered for as long as the file's size, times and inode stay."""
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


def _changed_files(about: Mapping[str, Any], folder: str | None) -> list[str]:
    """The files with outside data that are not what the entry was made from."""
    return [name for name, digest in about["files"].items() if digest != _now(folder, name)]


def _now(folder: str | None, name: str) -> str | None:
    try:
        return file_digest(os.path.join(folder or "", name))
    except OSError:
        return None


# --- for people -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Size:
    """`folder` is None where the caches are off; `kinds` has (entries, bytes) by kind."""

    folder: str | None
    limit_bytes: int
    kinds: dict[str, tuple[int, int]]

    @property
    def total_bytes(self) -> int:
        return sum(size for _, size in self.kinds.values())


def size() -> Size:
    root = knobs.cache_folder()
    kinds = dict.fromkeys(cache_folder.KINDS, (0, 0))
    for entry in cache_folder.entries(root) if root else ():
        count, total = kinds[entry.kind]
        kinds[entry.kind] = count + 1, total + entry.size_bytes
    return Size(root, knobs.current().cache_limit_bytes, kinds)


def clear() -> Size:
    """Drop every entry; what there was. Running executables keep what they have mapped."""
    before = size()
    if before.folder:
        cache_folder.trim(before.folder, limit=-1)
    return before


@dataclass(frozen=True)
class Why:
    """Whether a model would come from the cache. If not: what differs from the nearest entry, as
    (part of the key, its value here, its value there); none if there are no entries."""

    is_found: bool
    reason: str
    differences: tuple[tuple[str, Any, Any], ...] = ()


def why(model: Any, options: Mapping[str, Any]) -> Why:
    """Why ingot.compile(model, **options) would find its package in the cache, or would not."""
    asked = request(model, options)
    folder = open_folder("models")
    if asked is None or folder is None:
        off = "the caches are off (INGOT_CACHE_DIR)" if folder is None else ""
        return Why(False, off or "only model files and bytes are cached")
    about = _about(folder.path(asked.key))
    if about is not None:
        changed = _changed_files(about, asked.folder)
        if not changed:
            return Why(True, f"it is in {folder.path(asked.key)}")
        return Why(False, "its outside data changed: " + ", ".join(changed))
    return _nearest(asked.parts, folder.root)


def _nearest(parts: dict[str, Any], root: str) -> Why:
    best: tuple[tuple[str, Any, Any], ...] | None = None
    for entry in reversed(cache_folder.entries(root)):  # of equals, the one used last
        about = _about(entry.path) if entry.kind == "models" else None
        if about is not None:
            found = _differences(parts, about["parts"])
            if best is None or len(found) < len(best):
                best = found
    if best is None:
        return Why(False, "no model is in the cache")
    return Why(False, "the nearest entry differs in " + ", ".join(d[0] for d in best), best)


def _differences(here: dict, there: dict) -> tuple[tuple[str, Any, Any], ...]:
    names = dict.fromkeys([*here, *there])
    rows = ((name, here.get(name), there.get(name)) for name in names)
    return tuple(row for row in rows if row[1] != row[2])


def _about(path: str) -> dict[str, Any] | None:
    try:
        return plan_file.read_about(path)
    except (IngotError, OSError):
        return None

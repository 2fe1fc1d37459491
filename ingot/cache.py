"""The model cache: model and options → Package. Does not import the compiler.

    request = cache.request(model, options)    the cache key; None: not cacheable
    cache.lookup(request)                      a Package, or None
    cache.keep(request, package, files)        the package with its constants memory-mapped

    cache.size()   cache.clear()   cache.why(model, options)    used by `ingot cache …`

An entry is a plan file (runtime/plan_file.py). Its key is made of the digest that the model's
importer gives, the importer, the options, Ingot's source, library versions, the CPU, its measured
rates and the options that change code. The entry lists the model's external data files with their
digests, which are compared at lookup.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ingot import frontends
from ingot.runtime import plan_file
from ingot.runtime.cpu import measured
from ingot.runtime.cpu.pool import usable_cores
from ingot.runtime.package import Package
from ingot.support import cache_folder, identity, options
from ingot.support.cache_folder import open_folder
from ingot.support.errors import IngotError
from ingot.support.file_digest import file_digest


@dataclass(frozen=True)
class Request:
    """`fields`: the parts of the cache key, by name; `folder`: the model's folder."""

    fields: dict[str, Any]
    folder: str | None

    @property
    def key(self) -> str:
        text = json.dumps(self.fields, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


def request(model: Any, asked: Mapping[str, Any]) -> Request | None:
    """The key of a model and options; None if caching is off or its importer gives no digest."""
    if options.cache_folder() is None or not options.current().cache_models:
        return None
    importer, identity = frontends.identity(model)
    if identity is None:
        return None
    fields = {"model": identity.digest, "importer": importer, **asked}
    return Request(_key_fields(fields), identity.folder)


def lookup(request: Request) -> Package | None:
    """The package of an equal earlier compilation, or None; a damaged entry is dropped."""
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


def external_files(request: Request) -> dict[str, str] | None:
    """The external data files of an entry, with their digests; None if there is no entry."""
    folder = open_folder("models")
    about = _about(folder.path(request.key)) if folder else None
    return None if about is None else about["files"]


def keep(request: Request, package: Package, files: Iterable[str]) -> Package:
    """Store a package; the one returned has its constants mapped from the entry, if stored."""
    folder = open_folder("models")
    if folder is None:
        return package
    try:
        external = {name: file_digest(os.path.join(request.folder or "", name)) for name in files}
    except OSError:  # removed during compilation
        return package
    about = {"parts": request.fields, "files": external}
    path = folder.store(
        request.key,
        plan_file.size_of(package),
        lambda file: plan_file.write(file, package, about),
    )
    try:
        return package if path is None else replace(package, constants=plan_file.constants(path))
    except (IngotError, OSError):  # evicted by another process
        return package


def _key_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    rates = measured.in_use()
    fields = {
        **given,
        "plan format": plan_file.VERSION,
        "ingot": identity.source_digest(),
        **dict(identity.library_versions()),
        "processor": identity.processor(),
        "processor caches": identity.cpu_caches(),
        "cores": usable_cores(),
        "measured machine": None if rates is None else vars(rates),
        **{f"INGOT_{name.upper()}": value for name, value in options.fingerprint()},
    }
    # normalised through JSON, to compare equal with the fields read from an entry
    return json.loads(json.dumps(fields, sort_keys=True, default=repr))


def _changed_files(about: Mapping[str, Any], folder: str | None) -> list[str]:
    """The external data files that differ from those of the entry."""
    return [
        name for name, digest in about["files"].items() if digest != _current_digest(folder, name)
    ]


def _current_digest(folder: str | None, name: str) -> str | None:
    try:
        return file_digest(os.path.join(folder or "", name))
    except OSError:
        return None


# --- for the command line ---------------------------------------------------------------------


@dataclass(frozen=True)
class CacheSize:
    """`folder` is None if caching is off; `kinds` has (entries, bytes) by kind."""

    folder: str | None
    limit_bytes: int
    kinds: dict[str, tuple[int, int]]

    @property
    def total_bytes(self) -> int:
        return sum(size for _, size in self.kinds.values())


def size() -> CacheSize:
    root = options.cache_folder()
    kinds = dict.fromkeys(cache_folder.KINDS, (0, 0))
    for entry in cache_folder.entries(root) if root else ():
        count, total = kinds[entry.kind]
        kinds[entry.kind] = count + 1, total + entry.size_bytes
    return CacheSize(root, options.current().cache_limit_bytes, kinds)


def clear() -> CacheSize:
    """Remove all entries; the size before. Running executables keep their mappings."""
    before = size()
    if before.folder:
        cache_folder.trim(before.folder, limit=-1)
    return before


@dataclass(frozen=True)
class Explanation:
    """Would a model come from the cache? If not: the key fields that differ from the nearest entry,
    as (name, value here, value there); none if there are no entries."""

    is_found: bool
    reason: str
    differences: tuple[tuple[str, Any, Any], ...] = ()


def why(model: Any, asked_options: Mapping[str, Any]) -> Explanation:
    """Why ingot.compile with these options would be a cache hit or a miss."""
    asked = request(model, asked_options)
    folder = open_folder("models")
    if asked is None or folder is None:
        off = "caching is off (INGOT_CACHE_DIR)" if folder is None else ""
        return Explanation(False, off or "only model files and bytes are cached")
    about = _about(folder.path(asked.key))
    if about is not None:
        changed = _changed_files(about, asked.folder)
        if not changed:
            return Explanation(True, f"it is in {folder.path(asked.key)}")
        return Explanation(False, "its external data changed: " + ", ".join(changed))
    return _nearest(asked.fields, folder.root)


def _nearest(fields: dict[str, Any], root: str) -> Explanation:
    best: tuple[tuple[str, Any, Any], ...] | None = None
    for entry in reversed(cache_folder.entries(root)):  # ties: the most recently used
        about = _about(entry.path) if entry.kind == "models" else None
        if about is not None:
            found = _differences(fields, about["parts"])
            if best is None or len(found) < len(best):
                best = found
    if best is None:
        return Explanation(False, "no model is in the cache")
    return Explanation(False, "the nearest entry differs in " + ", ".join(d[0] for d in best), best)


def _differences(here: dict, there: dict) -> tuple[tuple[str, Any, Any], ...]:
    names = dict.fromkeys([*here, *there])
    rows = ((name, here.get(name), there.get(name)) for name in names)
    return tuple(row for row in rows if row[1] != row[2])


def _about(path: str) -> dict[str, Any] | None:
    try:
        return plan_file.read_about(path)
    except (IngotError, OSError):
        return None

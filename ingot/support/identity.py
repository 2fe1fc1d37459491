"""Digests of this installation and this machine, for cache keys. Imports no heavy library.

In: the package's files, installed libraries, /proc/cpuinfo. Out: digests and short texts. Called by
ingot/cache.py and codegen/kernel_cache.py.
"""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

VERSION = "0.1.0"  # of Ingot, as in pyproject.toml
# library → file with its version: libraries that change the compiled code
_LIBRARIES = {
    "llvmlite": "_version.py",
    "ml_dtypes": "__init__.py",
    "numpy": "version.py",
    "onnx": "version.py",
}
_CPU_FIELDS = (
    "vendor_id",
    "cpu family",
    "model",
    "flags",
    "CPU implementer",
    "CPU part",
    "Features",
)


@lru_cache(maxsize=1)
def source_digest() -> str:
    """The digest of every module of this package: another compiler makes other code."""
    digest = hashlib.blake2b(digest_size=16)
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for path in sorted(modules_below(package)):
        with open(path, "rb") as file:
            data = file.read()
        digest.update(f"{path[len(package) :]} {len(data)}\n".encode())
        digest.update(data)
    return digest.hexdigest()


def modules_below(folder: str) -> list[str]:
    """The paths of all Python files in a folder and below."""
    found = []
    with os.scandir(folder) as items:
        for item in items:
            if item.name.endswith(".py"):
                found.append(item.path)
            elif item.is_dir() and item.name != "__pycache__":
                found += modules_below(item.path)
    return found


@lru_cache(maxsize=1)
def library_versions() -> tuple[tuple[str, str], ...]:
    """(name, digest of the file with its version) of each library, without importing it."""
    return tuple((name, _version(name, file)) for name, file in _LIBRARIES.items())


def _version(name: str, file: str) -> str:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        return "not installed"
    path = os.path.join(os.path.dirname(spec.origin), file)
    try:
        with open(path, "rb") as stream:
            return hashlib.blake2b(stream.read(), digest_size=8).hexdigest()
    except OSError:
        status = os.stat(spec.origin)
        return f"{status.st_size} {status.st_mtime_ns}"


@lru_cache(maxsize=1)
def processor() -> str:
    """The CPU model and its full feature list, as the operating system reports them."""
    lines = []
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if not line.strip():
                    break  # the first core stands for all
                if line.partition(":")[0].strip() in _CPU_FIELDS:
                    lines.append(" ".join(line.split()))
    except OSError:
        pass
    return "; ".join([os.uname().machine, *lines])


@lru_cache(maxsize=1)
def cpu_caches() -> tuple[int, ...]:
    """Bytes of L1 data, L2 and L3 as the operating system reports them; empty if it does not."""
    found: dict[int, int] = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            level, size = int((index / "level").read_text()), (index / "size").read_text().strip()
        except (OSError, ValueError):
            return ()
        if kind in ("Data", "Unified") and size.endswith("K"):
            found[level] = int(size[:-1]) << 10
    return tuple(found[level] for level in sorted(found))

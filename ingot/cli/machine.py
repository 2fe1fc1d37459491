"""What `ingot doctor` looks at: the processor, cores and memory, LLVM, folders, packages, a try.

In: the machine. Out: `Finding`s. Each asks the code that the compiler itself asks, so that what is
told is what will happen.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np

from ingot import api, cache
from ingot.backends.cpu import BACKEND
from ingot.codegen import llvm_object
from ingot.graph.text import parse
from ingot.runtime.pool import cgroup_quota, usable_cores
from ingot.support import knobs
from ingot.support.errors import IngotError

# what each feature would bring, by architecture; LLVM's names
FEATURES = {
    "x86_64": {
        "sse4.2": "128-bit vectors",
        "avx": "256-bit vectors of floats",
        "avx2": "256-bit vectors of integers",
        "fma": "a multiply and an add in one",
        "f16c": "conversions of f16",
        "avx512f": "512-bit vectors, 32 registers",
        "avx512vnni": "int8 dot products in 512 bits",
        "avxvnni": "int8 dot products in 256 bits",
        "avx512bf16": "bf16 dot products",
        "avx512fp16": "arithmetic in f16",
        "amx-tile": "matrix tiles",
    },
    "aarch64": {
        "neon": "128-bit vectors",
        "fullfp16": "arithmetic in f16",
        "dotprod": "int8 dot products",
        "i8mm": "int8 matrix products",
        "bf16": "bf16 dot products",
        "sve": "vectors of any length (Ingot uses neon)",
        "sme": "matrix tiles",
    },
}
PEERS = {
    "onnxruntime": "a peer of ingot bench",
    "openvino": "a peer of ingot bench",
    "torch": "a peer of ingot bench for a torch.export file (--torch)",
}


@dataclass(frozen=True)
class Finding:
    """state: ok (there), none (not there), note (a fact), bad (nothing runs without it)."""

    part: str
    name: str
    state: str
    value: str
    why: str = ""


def examine() -> list[Finding]:
    return [*_software(), *_processor(), *_cores(), *_memory(), *_folders(), *_knobs(),
            *_packages(), _try()]  # fmt: skip


def _software() -> Iterator[Finding]:
    part = "software"
    yield Finding(part, "ingot", "ok", metadata.version("ingot"), str(Path(api.__file__).parent))
    yield Finding(part, "python", "ok", platform.python_version(), sys.executable)
    yield Finding(part, "LLVM", "ok", llvm_object.VERSION)
    system = platform.system()
    if system == "Linux":
        yield Finding(part, "system", "ok", f"{system} {platform.release()}")
    else:
        yield Finding(part, "system", "note", system, "only Linux is tested")


def _processor() -> Iterator[Finding]:
    part, target = "processor", BACKEND.target("cpu")
    yield Finding(part, "model", "note", _cpu_name(), target.triple)
    lanes = target.vector_bits // 32
    width = f"{target.vector_bits} bits, {target.vector_registers} registers"
    yield Finding(part, "vectors", "note", width, f"{lanes} lanes of f32")
    for feature, brings in FEATURES.get(target.architecture, {}).items():
        has = target.has(feature)
        yield Finding(part, feature, "ok" if has else "none", "yes" if has else "no", brings)
    for level, size in zip(("L1 data", "L2", "L3"), target.caches):
        yield Finding(part, level, "note", _bytes(size))


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _cores() -> Iterator[Finding]:
    part, present = "cores", os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else present
    quota = cgroup_quota()
    yield Finding(part, "present", "note", str(present))
    why = "" if allowed == present else "this process's affinity leaves the others out"
    yield Finding(part, "allowed", "note", str(allowed), why)
    limit = "none" if quota is None else f"{quota:g}"
    yield Finding(part, "quota", "note", limit, "" if quota is None else "of the control group")
    asked = knobs.current().threads
    why = "one a core that may be used" if asked is None else "INGOT_THREADS says so"
    yield Finding(part, "threads of a call", "note", str(asked or usable_cores()), why)


def _memory() -> Iterator[Finding]:
    part = "memory"
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        yield Finding(part, "present", "note", _bytes(total))
    except (ValueError, OSError):
        yield Finding(part, "present", "note", "unknown")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        limit = "max"
    text = "none" if limit == "max" else _bytes(int(limit))
    yield Finding(part, "limit", "note", text, "" if limit == "max" else "of the control group")


def _folders() -> Iterator[Finding]:
    part, found = "folders", cache.size()
    if found.folder is None:
        yield Finding(part, "cache", "none", "off", "INGOT_CACHE_DIR says so")
    else:
        yield _folder(part, "cache", Path(found.folder))
        limit = f"at most {_bytes(found.limit_bytes)}"
        yield Finding(part, "cached", "note", _bytes(found.total_bytes), limit)
    if knobs.current().dump_dir:
        yield _folder(part, "dumps", Path(knobs.current().dump_dir))


def _folder(part: str, name: str, path: Path) -> Finding:
    try:
        if not path.exists():
            parent = next(p for p in path.absolute().parents if p.exists())
            can = os.access(parent, os.W_OK)
            why = "made when it is needed" if can else f"{parent} may not be written to"
            return Finding(part, name, "ok" if can else "none", str(path), why)
        mode = path.stat().st_mode & 0o777
    except OSError as error:
        return Finding(part, name, "none", str(path), str(error))
    if not path.is_dir() or not os.access(path, os.W_OK | os.X_OK):
        return Finding(part, name, "none", str(path), "it is no folder that may be written to")
    if mode & 0o022:
        why = f"mode {mode:o}: others may write to it; a cache is not used then (chmod go-w)"
        return Finding(part, name, "none", str(path), why)
    return Finding(part, name, "ok", str(path), f"mode {mode:o}")


def _knobs() -> Iterator[Finding]:
    here, usual = vars(knobs.current()), vars(knobs.Knobs())
    for name, value in here.items():
        if value != usual[name]:
            yield Finding("environment", knobs.env_name(name), "note", str(value))


def _packages() -> Iterator[Finding]:
    for name, what in PEERS.items():
        try:
            yield Finding("peers", name, "ok", metadata.version(name), what)
        except metadata.PackageNotFoundError:
            yield Finding("peers", name, "none", "not installed", f"{what}: pip install {name}")


PROBE = """graph probe(%x: f32[n, 8]) {
  symbol n: 1..
  %y: f32[n, 8] = add(%x, %x)
  return %y
}
"""


def _try() -> Finding:
    """A small model, the whole way: code generation, memory that may be run, threads."""
    part, name = "a try", "compile and run"
    start = time.perf_counter()
    try:
        exe = api.compile(parse(PROBE), jobs=1)
        (answer,) = exe(np.ones((3, 8), np.float32))
    except (IngotError, OSError) as error:
        return Finding(part, name, "bad", "failed", " ".join(str(error).split()))
    if not (answer == 2).all():
        return Finding(part, name, "bad", "wrong answer", "1 + 1 is not 2 here")
    return Finding(part, name, "ok", f"{time.perf_counter() - start:.2f} s")


def _bytes(size: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return (
                f"{size / factor:g} {unit}" if size % factor == 0 else f"{size / factor:.1f} {unit}"
            )
    return f"{size} B"

"""The checks of `ingot doctor`: software, CPU, cores, memory, folders, packages, a smoke test.

In: the machine. Out: `Finding`s. Each check uses the compiler's own code, so that it reports what a
compilation will find.
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

from ingot import api, backends, cache, frontends
from ingot.backends.base import Backend
from ingot.codegen import llvm_object
from ingot.graph.text import parse
from ingot.runtime.cpu import measured
from ingot.runtime.cpu.pool import cgroup_quota, usable_cores
from ingot.support import options
from ingot.support.errors import IngotError
from ingot.support.plugins import Installed

# CPU features by architecture, by LLVM's names: what each one provides
FEATURES = {
    "x86_64": {
        "sse4.2": "128-bit vectors",
        "avx": "256-bit float vectors",
        "avx2": "256-bit integer vectors",
        "fma": "fused multiply-add",
        "f16c": "f16 conversions",
        "avx512f": "512-bit vectors, 32 registers",
        "avx512vnni": "int8 dot products in 512 bits",
        "avxvnni": "int8 dot products in 256 bits",
        "avx512bf16": "bf16 dot products",
        "avx512fp16": "f16 arithmetic",
        "amx-tile": "matrix tiles",
    },
    "aarch64": {
        "neon": "128-bit vectors",
        "fullfp16": "f16 arithmetic",
        "dotprod": "int8 dot products",
        "i8mm": "int8 matrix multiplication",
        "bf16": "bf16 dot products",
        "sve": "scalable vectors (Ingot uses neon)",
        "sme": "matrix tiles",
    },
}
PEERS = {
    "onnxruntime": "for ingot bench",
    "openvino": "for ingot bench",
    "torch": "for ingot bench with a torch.export file (--torch)",
}


@dataclass(frozen=True)
class Finding:
    """state: ok (present), none (absent), note (information), bad (models cannot run)."""

    section: str
    name: str
    state: str
    value: str
    why: str = ""


def examine() -> list[Finding]:
    return [*_software(), *_processor(), *_machine(), *_cores(), *_memory(), *_folders(),
            *_options(), *_backends(), *_frontends(), *_packages(), _smoke_test()]  # fmt: skip


def _software() -> Iterator[Finding]:
    section = "software"
    yield Finding(section, "ingot", "ok", metadata.version("ingot"), str(Path(api.__file__).parent))
    yield Finding(section, "python", "ok", platform.python_version(), sys.executable)
    yield Finding(section, "LLVM", "ok", llvm_object.VERSION)
    system = platform.system()
    if system == "Linux":
        yield Finding(section, "system", "ok", f"{system} {platform.release()}")
    else:
        yield Finding(section, "system", "note", system, "only Linux is tested")


def _processor() -> Iterator[Finding]:
    section, target = "processor", backends.find("cpu").target("cpu")
    yield Finding(section, "model", "note", _cpu_name(), target.triple)
    lanes = target.vector_bits // 32
    width = f"{target.vector_bits} bits, {target.vector_registers} registers"
    yield Finding(section, "vectors", "note", width, f"{lanes} lanes of f32")
    for feature, provides in FEATURES.get(target.architecture, {}).items():
        has = target.has(feature)
        yield Finding(section, feature, "ok" if has else "none", "yes" if has else "no", provides)
    for level, size in zip(("L1 data", "L2", "L3"), target.caches):
        yield Finding(section, level, "note", _bytes(size))


def _machine() -> Iterator[Finding]:
    """The machine that the cost model reads for the target cpu: a row of the table, or measured."""
    section, machine = "machine model", backends.find("cpu").target("cpu").machine
    stored = measured.find()
    yield Finding(section, "machine", "note", machine.name, _machine_source(stored))
    if stored.problem:
        yield Finding(section, "measured", "none", stored.path, f"not used: {stored.problem}")
    yield Finding(section, "clock", "note", f"{machine.clock_ghz:g} GHz", "FMAs of full width")
    for number in range(len(machine.cache_bytes_per_cycle)):
        rate = f"{machine.cache_bytes_per_ns(number):.3g} GB/s"
        yield Finding(section, f"L{number + 1} rate", "note", rate, "copy, one core")
    one, all_cores = machine.core_memory_bytes_per_ns, machine.memory_bytes_per_ns
    yield Finding(section, "memory rate", "note", f"{all_cores:g} GB/s", "read, all cores")
    yield Finding(section, "memory rate of a core", "note", f"{one:g} GB/s", "read, one core")


def _machine_source(stored: measured.Stored) -> str:
    if stored.rates is None:
        return "from the table of machines; --measure measures this one"
    if not options.current().has("measured_machine"):
        return "from the table of machines; measured_machine is off (INGOT_OFF)"
    return f"measured, in {stored.path}"


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _cores() -> Iterator[Finding]:
    section, present = "cores", os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else present
    quota = cgroup_quota()
    yield Finding(section, "present", "note", str(present))
    why = "" if allowed == present else "limited by this process's CPU affinity"
    yield Finding(section, "allowed", "note", str(allowed), why)
    limit = "none" if quota is None else f"{quota:g}"
    yield Finding(section, "quota", "note", limit, "" if quota is None else "cgroup CPU quota")
    threads = options.current().threads
    why = "one per usable core" if threads is None else "set by INGOT_THREADS"
    yield Finding(section, "threads per call", "note", str(threads or usable_cores()), why)


def _memory() -> Iterator[Finding]:
    section = "memory"
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        yield Finding(section, "present", "note", _bytes(total))
    except (ValueError, OSError):
        yield Finding(section, "present", "note", "unknown")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        limit = "max"
    text = "none" if limit == "max" else _bytes(int(limit))
    yield Finding(section, "limit", "note", text, "" if limit == "max" else "cgroup memory limit")


def _folders() -> Iterator[Finding]:
    section, found = "folders", cache.size()
    if found.folder is None:
        yield Finding(section, "cache", "none", "off", "set by INGOT_CACHE_DIR")
    else:
        yield _folder(section, "cache", Path(found.folder))
        limit = f"at most {_bytes(found.limit_bytes)}"
        yield Finding(section, "cached", "note", _bytes(found.total_bytes), limit)
    if options.current().dump_dir:
        yield _folder(section, "dumps", Path(options.current().dump_dir))


def _folder(section: str, name: str, path: Path) -> Finding:
    try:
        if not path.exists():
            parent = next(p for p in path.absolute().parents if p.exists())
            can = os.access(parent, os.W_OK)
            why = "created when needed" if can else f"{parent} is not writeable"
            return Finding(section, name, "ok" if can else "none", str(path), why)
        mode = path.stat().st_mode & 0o777
    except OSError as error:
        return Finding(section, name, "none", str(path), str(error))
    if not path.is_dir() or not os.access(path, os.W_OK | os.X_OK):
        return Finding(section, name, "none", str(path), "not a writeable folder")
    if mode & 0o022:
        why = f"mode {mode:o}: writeable by others, so the cache is not used (chmod go-w)"
        return Finding(section, name, "none", str(path), why)
    return Finding(section, name, "ok", str(path), f"mode {mode:o}")


def _options() -> Iterator[Finding]:
    current, defaults = vars(options.current()), vars(options.from_environment({}))
    for name, value in current.items():
        if value != defaults[name]:
            yield Finding("environment", options.env_name(name), "note", str(value))


def _backends() -> Iterator[Finding]:
    for found in backends.installed():
        obstacle = "" if found.loaded is None else _obstacle(found.loaded, found.plugin.name)
        yield _plugin("back ends", found, obstacle)


def _obstacle(backend: Backend, target: str) -> str:
    """Why code of the back end's default target cannot run here; empty if it can, or if there is no
    such target."""
    try:
        return backend.why_not_here(backend.target(target))
    except IngotError:
        return ""
    except Exception as error:  # a foreign back end may fail in any way
        return f"{type(error).__name__}: {error}"


def _frontends() -> Iterator[Finding]:
    for found in frontends.installed():
        yield _plugin("front ends", found)


def _plugin(section: str, found: Installed, obstacle: str = "") -> Finding:
    source = f"{found.plugin.package} {found.plugin.version}"
    why = found.error or obstacle
    return Finding(section, found.plugin.name, "none" if why else "ok", source, why)


def _packages() -> Iterator[Finding]:
    for name, what in PEERS.items():
        try:
            yield Finding("peers", name, "ok", metadata.version(name), what)
        except metadata.PackageNotFoundError:
            yield Finding("peers", name, "none", "not installed", f"{what}: pip install {name}")


SMOKE_TEST_MODEL = """graph smoke_test(%x: f32[n, 8]) {
  symbol n: 1..
  %y: f32[n, 8] = add(%x, %x)
  return %y
}
"""


def _smoke_test() -> Finding:
    """Compile and run a small model: code generation, executable memory, threads."""
    section, name = "smoke test", "compile and run"
    start = time.perf_counter()
    try:
        exe = api.compile(parse(SMOKE_TEST_MODEL), jobs=1)
        (output,) = exe(np.ones((3, 8), np.float32))
    except (IngotError, OSError) as error:
        return Finding(section, name, "bad", "failed", " ".join(str(error).split()))
    if not (output == 2).all():
        return Finding(section, name, "bad", "wrong output", "x + x is not 2 for x = 1")
    return Finding(section, name, "ok", f"{time.perf_counter() - start:.2f} s")


def _bytes(size: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return (
                f"{size / factor:g} {unit}" if size % factor == 0 else f"{size / factor:.1f} {unit}"
            )
    return f"{size} B"

"""The CPU's module: objects and what the runtime must know about them ↔ named bytes.

In: filled by backends/cpu.py. Out: a Module of kind "elf" in the package, and back: read by
loaded.py and by the tools that look at objects.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from ingot.runtime.package import HOST, Module, Package

KIND = "elf"


@dataclass(frozen=True)
class Probe:
    """Code that measures peak FLOP/s and bandwidth (native/probe.py)."""

    code: bytes
    flops_per_iteration: int  # FLOPs of one iteration of its FMA loop
    caches: tuple[int, ...]  # bytes of L1, L2 …


@dataclass(frozen=True)
class CpuModule:
    kernels: tuple[bytes, ...]  # one object per kernel, in the order of the kernel table
    entry: bytes
    support: bytes  # native/support.py, compiled
    architecture: str  # as in a target's triple
    features: tuple[str, ...]  # CPU features that the code needs, by LLVM's names
    slot_count: int  # of the table of the caller's arrays
    dynamic_count: int  # allocations that a run makes
    probe: Probe | None = None  # only in a profiled build, whose entry counts cycles

    def pack(self) -> Module:
        facts = {
            "architecture": self.architecture,
            "features": self.features,
            "slot_count": self.slot_count,
            "dynamic_count": self.dynamic_count,
        }
        blobs = [("entry", self.entry), ("support", self.support)]
        if self.probe is not None:
            blobs.append(("probe", self.probe.code))
            facts["probe"] = [self.probe.flops_per_iteration, self.probe.caches]
        text = json.dumps(facts, separators=(",", ":")).encode()
        kernels = ((f"kernel {i}", data) for i, data in enumerate(self.kernels))
        return Module(HOST, KIND, (("facts", text), *blobs, *kernels))


def read(package: Package) -> CpuModule:
    """The CPU's module of a package."""
    (module,) = (module for module in package.modules if module.device == HOST)
    blobs = dict(module.blobs)
    facts = json.loads(blobs.pop("facts"))
    entry, support, probe_code = blobs.pop("entry"), blobs.pop("support"), blobs.pop("probe", None)
    probe = None
    if probe_code is not None:
        flops, caches = facts["probe"]
        probe = Probe(probe_code, flops, tuple(caches))
    return CpuModule(
        tuple(blobs.values()),
        entry,
        support,
        facts["architecture"],
        tuple(facts["features"]),
        facts["slot_count"],
        facts["dynamic_count"],
        probe,
    )

"""State that the legalize passes share: the target, fresh names, and remarks for the report."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ingot.loops import ir, visit
from ingot.loops.alignment import Align, alignments
from ingot.target import Target

_NUMBERED = re.compile(r"_\d+$")


class FreshNames:
    """Names not yet bound in a kernel."""

    def __init__(self, taken: set[str]):
        self._taken = taken
        self._counts: dict[str, int] = {}

    @staticmethod
    def of(kernel: ir.Kernel) -> FreshNames:
        return FreshNames(bound_names(kernel))

    def fresh(self, base: str) -> str:
        base = _NUMBERED.sub("", base)
        while True:
            count = self._counts[base] = self._counts.get(base, 0) + 1
            name = f"{base}_{count}"
            if name not in self._taken:
                self._taken.add(name)
                return name


# Target features (LLVM's names) that bring rounding instructions and f16 conversions.
ROUNDING = ("sse4.1", "neon", "fp-armv8", "simd128")
HALF_CASTS = ("f16c", "fullfp16", "fp-armv8", "avx512fp16")


@dataclass
class PassContext:
    """State of one kernel's legalization. `remarks` report loops left serial or scalar, and why."""

    target: Target
    names: FreshNames
    remarks: list[ir.Remark] = field(default_factory=list)
    aligned: dict[str, Align] = field(default_factory=dict)  # from storage_align annotations

    def remark(self, about: str, why: str) -> None:
        self.remarks.append(ir.Remark("", about, why))

    def has_any(self, features: tuple[str, ...]) -> bool:
        return any(self.target.has(feature) for feature in features)

    @staticmethod
    def of(kernel: ir.Kernel, target: Target) -> PassContext:
        return PassContext(target, FreshNames.of(kernel), aligned=alignments(kernel.body))


def bound_names(kernel: ir.Kernel) -> set[str]:
    """Every name the kernel binds: parameters, sizes, loops, lets, allocations, block axes."""
    names = {b.name for b in kernel.params} | {s.name for s in kernel.sizes}
    for s in visit.walk_stmts(kernel.body):
        match s:
            case ir.For(var=name) | ir.Let(name=name):
                names.add(name)
            case ir.Alloc(buffer=buffer):
                names.add(buffer.name)
            case ir.Block(axes=axes):
                names.update(axis.var for axis in axes)
    return names

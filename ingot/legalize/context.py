"""What the steps of legalize share: the target, fresh names, and notes for the report."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ingot.loops import ir, visit
from ingot.loops.alignment import Align, alignments
from ingot.target import Target

_NUMBERED = re.compile(r"_\d+$")


class Names:
    """Names not yet bound in a kernel."""

    def __init__(self, taken: set[str]):
        self._taken = taken
        self._counts: dict[str, int] = {}

    @staticmethod
    def of(kernel: ir.Kernel) -> Names:
        return Names(bound_names(kernel))

    def fresh(self, base: str) -> str:
        base = _NUMBERED.sub("", base)
        while True:
            count = self._counts[base] = self._counts.get(base, 0) + 1
            name = f"{base}_{count}"
            if name not in self._taken:
                self._taken.add(name)
                return name


# What the target's own instructions do, by the features (LLVM's names) that bring it.
ROUNDING = ("sse4.1", "neon", "fp-armv8", "simd128")
HALF_CASTS = ("f16c", "fullfp16", "fp-armv8", "avx512fp16")


@dataclass
class Context:
    """One kernel's way through the steps. `notes` say what was left slow, and why."""

    target: Target
    names: Names
    notes: list[str] = field(default_factory=list)
    aligned: dict[str, Align] = field(default_factory=dict)  # strides that the schedule asks for

    def has_any(self, features: tuple[str, ...]) -> bool:
        return any(self.target.has(feature) for feature in features)

    @staticmethod
    def of(kernel: ir.Kernel, target: Target) -> Context:
        return Context(target, Names.of(kernel), aligned=alignments(kernel.body))


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

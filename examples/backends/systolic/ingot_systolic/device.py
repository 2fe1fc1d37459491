"""The device: Ingot's program interpreter stands in for the machine.

A module holds the program's text; its constants are at the offsets of the memory plan. The memory
of the device is the host's, so its arrays are numpy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ingot.arith.expr import evaluate
from ingot.graph.ir import ConstRef
from ingot.program import interp, ir, text
from ingot.runtime.package import Module, Package
from ingot.runtime.profile import Counters
from ingot.runtime.sizes import Shape, Sizes
from ingot.support.errors import IngotError

NAME, KIND = "systolic", "program text"


def module_of(program: ir.Program) -> Module:
    return Module(NAME, KIND, (("program", text.show(program).encode()),))


class Constants:
    """The package's constants by reference, as the interpreter asks for them."""

    def __init__(self, package: Package, program: ir.Program):
        self.arrays: dict[ConstRef, np.ndarray] = {}
        for b in program.buffers:
            if b.constant is not None and b.allocation is not None:
                at, size = evaluate(b.allocation.offset, {}), evaluate(b.size_bytes, {})
                raw = package.constants[at : at + size].view(b.dtype.numpy)
                self.arrays[b.constant] = raw.reshape([evaluate(d, {}) for d in b.shape])

    def get(self, ref: ConstRef) -> np.ndarray:
        return self.arrays[ref]


class Loaded:
    threads, has_counters = 1, False

    def __init__(self, package: Package):
        (module,) = package.modules
        self.package = package
        self.program = text.parse(dict(module.blobs)["program"].decode())
        self.constants = Constants(package, self.program)

    def run(
        self, sizes: Sizes, inputs: Sequence[Any], outputs: list[Any], threads: int | None,
        is_plain: bool,
    ) -> list[Any]:  # fmt: skip
        feeds = dict(zip(self.program.inputs, inputs))
        made = interp.run(self.program, self.constants, feeds)
        for i, array in enumerate(made):
            if outputs[i] is None:
                outputs[i] = array
            else:
                outputs[i][...] = array.reshape(outputs[i].shape)
        return outputs

    def repeat(self, inputs: Sequence[Any]) -> None:
        return None  # no fast path

    def context(self) -> Loaded:
        return Loaded(self.package)

    def start_counters(self) -> None:
        raise self.no_counters()

    def counters(self) -> Counters:
        raise self.no_counters()

    def no_counters(self) -> IngotError:
        return IngotError("bad-option", "this device has no counters", hint="profile on the CPU")

    def close(self) -> None:
        self.program = None

    def trim(self) -> int:
        return 0  # it keeps nothing between calls


class Device:
    name, default_threads = NAME, 1

    def why_not(self, package: Package) -> str:
        kinds = [module.kind for module in package.modules]
        return "" if kinds == [KIND] else f"it runs one module of {KIND}, not {kinds}"

    def load(self, package: Package) -> Loaded:
        return Loaded(package)

    def allocate(self, shape: Shape, dtype: np.dtype) -> np.ndarray:
        return np.empty(shape, dtype)

    def copy(self, to: np.ndarray, source: np.ndarray) -> None:
        np.copyto(to, source, casting="no")

    def from_dlpack(self, value: Any, where: str) -> np.ndarray:
        return np.from_dlpack(value)

    def synchronize(self) -> None:
        """Nothing to wait for: the interpreter runs synchronously."""


DEVICE = Device()

"""A device from outside: it interprets programs, and its arrays are in memory of their own.

The runtime knows nothing of it: test_devices.py makes an entry point that leads here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ingot import IngotError
from ingot.arith import expr as arith
from ingot.graph.ir import ConstRef
from ingot.program import interp, text
from ingot.runtime.package import Module, Package
from ingot.runtime.profile import Counters, Peak
from ingot.runtime.sizes import Shape, Sizes
from ingot.runtime.trace import Events

KIND = "program text"


class Sheet:
    """An array of the device: shape and dtype are all that the runtime may ask of it."""

    def __init__(self, values: np.ndarray):
        self._values = values
        self.shape, self.dtype = values.shape, values.dtype


class _Constants:
    def __init__(self, package: Package, program: Any):
        self._values = {}
        for b in program.buffers:
            if b.constant is not None:
                at, size = (arith.evaluate(e, {}) for e in (b.allocation.offset, b.size_bytes))
                shape = [arith.evaluate(dim, {}) for dim in b.shape]
                raw = package.constants[at : at + size].view(b.dtype.numpy)
                self._values[b.constant] = raw.reshape(shape)

    def get(self, ref: ConstRef) -> np.ndarray:
        return self._values[ref]


class Loaded:
    threads, has_counters = 1, False

    def __init__(self, device: PaperDevice, package: Package):
        (module,) = package.modules
        self._device, self._package = device, package
        self._program = text.parse(dict(module.blobs)["text"].decode())
        self._constants = _Constants(package, self._program)
        self.runs, self.is_closed = 0, False

    def run(
        self, sizes: Sizes, inputs: Sequence[Any], outputs: list[Any], threads: int | None,
        is_plain: bool,
    ) -> list[Any]:  # fmt: skip
        if self.is_closed:
            raise IngotError("bad-option", "this module is closed", hint="load it again")
        self.runs += 1
        given = [self._device.from_dlpack(x, "")._values for x in inputs]
        feeds = dict(zip(self._program.inputs, given))
        made = interp.run(self._program, self._constants, feeds)  # type: ignore[arg-type]
        for i, (output, result) in enumerate(zip(outputs, made)):
            if output is None:
                outputs[i] = result
            else:
                self._device.copy(output, Sheet(result))
        return outputs

    def repeat(self, inputs: Sequence[Any]) -> None:
        return None

    def context(self) -> Loaded:
        return Loaded(self._device, self._package)

    def start_counters(self) -> None:
        raise AssertionError("it has no counters")

    def counters(self) -> Counters:
        return Counters([], 0, {}, Peak(1, 1.0, ()))

    def trace(self, call: Callable[[], None], calls: int) -> Events:
        raise AssertionError("it has no counters")

    def close(self) -> None:
        self.is_closed = True

    def trim(self) -> int:
        return 0  # it keeps nothing between calls


class PaperDevice:
    name, default_threads = "paper", 1

    def __init__(self) -> None:
        self.allocated = self.copied = 0

    def why_not(self, package: Package) -> str:
        wrong = [m.kind for m in package.modules if m.kind != KIND]
        return f"it reads {KIND}, not {wrong[0]}" if wrong else ""

    def load(self, package: Package) -> Loaded:
        return Loaded(self, package)

    def allocate(self, shape: Shape, dtype: np.dtype) -> Sheet:
        self.allocated += 1
        return Sheet(np.empty(shape, dtype))

    def copy(self, to: Any, source: Any) -> None:
        self.copied += 1
        np.copyto(_values(to), _values(source), casting="no")

    def from_dlpack(self, value: Any, where: str) -> Sheet:
        if isinstance(value, Sheet):
            return value
        values = np.from_dlpack(value)
        sheet = self.allocate(values.shape, values.dtype)
        self.copy(sheet, values)
        return sheet

    def synchronize(self) -> None:
        """It is never behind."""


def _values(array: Any) -> np.ndarray:
    return array._values if isinstance(array, Sheet) else array


def module_of(program: Any) -> Module:
    return Module("paper", KIND, (("text", text.show(program).encode()),))


DEVICE = PaperDevice()

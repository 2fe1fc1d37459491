"""Callable kernels and their schedules. In: a loop-IR kernel. Out: results on numpy arrays or torch
tensors.

    kernel(A, B, C)        fills C               kernel(A, B)           allocates and returns C
    print(kernel)          source text, which can be parsed back
    kernel.source("asm")   its generated code    kernel.interpret(A, B) by the loop interpreter
    kernel.schedule(fn)    a scheduled copy      kernel.profile(A, B)   time per loop nest
    kernel.attrs           attributes of a graph's `kernel` node

No schedule is applied except the user's own. Native code is compiled at the first call, once per
target. `schedule/` is a lower level that does not know callable kernels; this module connects them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ingot.kernels.arguments import bind
from ingot.kernels.build import compile_kernel, default_schedule, source_of
from ingot.loops import interp, ir
from ingot.loops.coverage import covers
from ingot.loops.script_print import show
from ingot.loops.signature import Reference, set_reference, signature
from ingot.loops.verify import verify
from ingot.runtime.executable import Executable
from ingot.runtime.profile import Profile
from ingot.schedule import schedule
from ingot.support.errors import IngotError


class KernelFunction:
    """`ir` is the loop IR; `reference`, if given, computes the same in numpy."""

    def __init__(
        self,
        kernel: ir.Kernel,
        reference: Reference | None = None,
        filled: tuple[str, ...] | None = None,
    ):
        verify(kernel)
        self.ir = kernel
        self.reference = reference
        outputs = signature(kernel).outputs
        # a schedule keeps the kernel's meaning, so `filled` stays valid
        self.filled = filled or tuple(p.name for p in outputs if covers(kernel, p.name))
        if reference is not None:
            set_reference(kernel, reference)
        self._built: dict[str, Executable] = {}
        self._lock = threading.Lock()

    # --- text -------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.ir.name

    def __str__(self) -> str:
        return show(self.ir)

    def __repr__(self) -> str:
        params = ", ".join(
            f"{p.name}: {p.dtype}[{', '.join(map(str, p.shape))}]" for p in self.ir.params
        )
        return f"<ingot.kernel {self.name}({params})>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KernelFunction) and self.ir == other.ir

    def __hash__(self) -> int:
        return hash(self.ir)

    def source(self, what: str = "loops", target: str = "cpu") -> str:
        """The text of the kernel: "loops" (as written), "legal" (after legalize), "llvm" or
        "asm"."""
        return source_of(self.ir, what, target)

    # --- calling ----------------------------------------------------------------------------------

    def __call__(self, *arrays: Any, threads: int | None = None, target: str = "cpu") -> Any:
        """Run on arrays in the order of the parameters. Omitted outputs are allocated, zero where
        the kernel does not write, and returned."""
        exe = self._built.get(target) or self.executable(target)
        if len(arrays) == len(self.ir.params) and all(type(a) is np.ndarray for a in arrays):
            return self._fill(exe, arrays, threads)
        arguments = bind(self.ir, arrays)
        exe.run_with(arguments.arrays, threads)
        return arguments.result()

    def _fill(self, exe: Executable, arrays: tuple[np.ndarray, ...], threads: int | None) -> None:
        """Nothing is allocated or converted: the executable's own checks are enough. Its error
        messages are those of a model, so `bind` is called to raise the kernel's."""
        try:
            exe.run_with(arrays, threads)
        except IngotError:
            bind(self.ir, arrays)
            raise

    def profile(
        self, *arrays: Any, threads: int | None = None, target: str = "cpu", runs: int = 20
    ) -> Profile:
        """Time per loop nest, and the fraction of the machine's peak that it reaches. Arrays that
        the kernel writes are copied first: the caller's are unchanged."""
        exe = compile_kernel(self.ir, target, profile=True)
        exe.threads = threads  # type: ignore[assignment]
        given, written = bind(self.ir, arrays).arrays, signature(self.ir).outputs
        feeds = {p.name: a.copy() if p in written else a for p, a in zip(self.ir.params, given)}
        return exe.profile(feeds, runs)

    def interpret(self, *arrays: Any) -> Any:
        """Run in the loop interpreter: slow, with every access bounds-checked."""
        arguments = bind(self.ir, arrays)
        interp.run(self.ir, arguments.arrays, arguments.sizes)
        return arguments.result()

    def executable(self, target: str = "cpu") -> Executable:
        """The native code, compiled on first use. It takes all parameters as inputs."""
        with self._lock:
            if target not in self._built:
                self._built[target] = compile_kernel(self.ir, target)
            return self._built[target]

    # --- other kernels ----------------------------------------------------------------------------

    def with_ir(self, kernel: ir.Kernel) -> KernelFunction:
        """The same function with another loop nest."""
        return KernelFunction(kernel, self.reference, self.filled)

    def schedule(self, steps: Callable[[Any], Any] | None = None) -> KernelFunction:
        """The kernel after the schedule steps of `steps(sch)`; None: the default schedule."""
        if steps is None:
            return self.with_ir(default_schedule(self.ir, "cpu"))
        sch = Schedule(self)
        steps(sch)
        return sch.build()

    @property
    def attrs(self) -> dict[str, Any]:
        """The attributes of a graph node: `g.add("kernel", [x], **kernel.attrs)`."""
        return {"source": str(self), "filled": self.filled}


class Schedule(schedule.Schedule):
    """A kernel and its schedule steps; `sch.build()` is the result, ready to call.

    docs/schedule.md has the primitives; `sch.kernel` is the current loop IR, `sch.trace` the steps
    so far.
    """

    def __init__(self, kernel: KernelFunction | ir.Kernel):
        self._wrapped = wrap(kernel)
        super().__init__(self._wrapped.ir)

    def build(self) -> KernelFunction:
        """The current kernel as a function."""
        return self._wrapped.with_ir(self.kernel)


def wrap(kernel: KernelFunction | ir.Kernel | schedule.Schedule | Any) -> KernelFunction:
    """A kernel, a schedule or loop IR as a callable kernel."""
    match kernel:
        case KernelFunction():
            return kernel
        case ir.Kernel():
            return KernelFunction(kernel)
        case Schedule():
            return kernel.build()
        case schedule.Schedule():
            return KernelFunction(kernel.kernel)
    what = f"a {type(kernel).__name__} is not a kernel"
    raise IngotError("bad-option", what, hint="write one with @ingot.kernel")

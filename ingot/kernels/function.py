"""A kernel that can be called, and a schedule that ends in one. In: a loops kernel. Out: results on
numpy arrays or torch tensors.

    kernel(A, B, C)        fills C               kernel(A, B)           makes and returns C
    print(kernel)          source that parses back and runs
    kernel.source("asm")   what becomes of it    kernel.interpret(A, B) the same, by the interpreter
    kernel.schedule(fn)    a faster equal one    kernel.profile(A, B)   where the time goes
    kernel.attrs           it as an operator of a graph

What the user wrote is what runs: no schedule is applied unless asked for. Native code is made at
the first call, once for each target. `schedule/` is below and knows nothing of callable kernels;
this is where the two meet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ingot.kernels.arguments import bind
from ingot.kernels.build import compile_kernel, source_of
from ingot.loops import interp, ir
from ingot.loops.coverage import covers
from ingot.loops.script_print import show
from ingot.loops.signature import Reference, set_reference, signature
from ingot.loops.verify import verify
from ingot.runtime.executable import Executable
from ingot.runtime.profile import Profile
from ingot.schedule import rules, schedule
from ingot.support import lazy
from ingot.support.errors import IngotError


class KernelFunction:
    """`ir` is the kernel itself; `reference`, if given, computes the same by numpy."""

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
        # a schedule changes no kernel's meaning, so what was seen before it still holds
        self.filled = filled or tuple(p.name for p in outputs if covers(kernel, p.name))
        if reference is not None:
            set_reference(kernel, reference)
        self._built: dict[str, Executable] = {}
        self._lock = threading.Lock()

    # --- what people read -------------------------------------------------------------------------

    @property
    def name(self) -> str:
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
        """The text of the kernel: "loops" (as written), "legal" (what the printer gets), "llvm"
        or "asm"."""
        return source_of(self.ir, what, target)

    # --- calling ----------------------------------------------------------------------------------

    def __call__(self, *arrays: Any, threads: int | None = None, target: str = "cpu") -> Any:
        """Run on arrays in the order of the parameters. Outputs may be left out: they are made,
        with zeros wherever the kernel writes nothing, and returned."""
        exe = self._built.get(target) or self.executable(target)
        if len(arrays) == len(self.ir.params) and all(type(a) is np.ndarray for a in arrays):
            return self._fill(exe, arrays, threads)
        arguments = bind(self.ir, arrays)
        exe.run_with(arguments.arrays, threads)
        return arguments.result()

    def _fill(self, exe: Executable, arrays: tuple[np.ndarray, ...], threads: int | None) -> None:
        """Nothing is to be made or converted: the executable's own checks are all there is to do.
        Its words for a bad array are a model's, so `bind` is asked for those of a kernel."""
        try:
            exe.run_with(arrays, threads)
        except IngotError:
            bind(self.ir, arrays)
            raise

    def profile(
        self, *arrays: Any, threads: int | None = None, target: str = "cpu", runs: int = 20
    ) -> Profile:
        """Where the time of a call goes, nest by nest, and what share of the machine's peak each
        reaches. Arrays that the kernel writes are copied before: the caller's stay as they are."""
        exe = compile_kernel(self.ir, target, profile=True)
        exe.threads = threads  # type: ignore[assignment]
        given, written = bind(self.ir, arrays).arrays, signature(self.ir).outputs
        feeds = {p.name: a.copy() if p in written else a for p, a in zip(self.ir.params, given)}
        return exe.profile(feeds, runs)

    def interpret(self, *arrays: Any) -> Any:
        """The same, by the loop interpreter: slow, and every access is checked."""
        arguments = bind(self.ir, arrays)
        interp.run(self.ir, arguments.arrays, arguments.sizes)
        return arguments.result()

    def executable(self, target: str = "cpu") -> Executable:
        """The native code, made when first asked for. It takes all parameters as inputs."""
        with self._lock:
            if target not in self._built:
                self._built[target] = compile_kernel(self.ir, target)
            return self._built[target]

    # --- other kernels ----------------------------------------------------------------------------

    def with_ir(self, kernel: ir.Kernel) -> KernelFunction:
        """An equal kernel in other loops."""
        return KernelFunction(kernel, self.reference, self.filled)

    def schedule(self, steps: Callable[[Any], Any] | None = None) -> KernelFunction:
        """The kernel after the steps that `steps(sch)` takes; None: the default schedule."""
        if steps is None:
            return self.with_ir(default_schedule(self.ir))
        sch = Schedule(self)
        steps(sch)
        return sch.build()

    @property
    def attrs(self) -> dict[str, Any]:
        """It as an operator of a graph: `g.add("kernel", [x], **kernel.attrs)`."""
        return {"source": str(self), "filled": self.filled}


class Schedule(schedule.Schedule):
    """A kernel and the steps that make it faster: `sch.build()` is the result, ready to call.

    docs/schedule.md has the primitives; `sch.kernel` is the loop IR as it stands, `sch.trace` the
    steps so far.
    """

    def __init__(self, kernel: KernelFunction | ir.Kernel):
        self._wrapped = wrap(kernel)
        super().__init__(self._wrapped.ir)

    def build(self) -> KernelFunction:
        """The kernel as it stands, as a function."""
        return self._wrapped.with_ir(self.kernel)


def wrap(kernel: KernelFunction | ir.Kernel | schedule.Schedule | Any) -> KernelFunction:
    """Whatever holds a kernel, as one that can be called."""
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


def default_schedule(kernel: ir.Kernel, target: str = "cpu") -> ir.Kernel:
    """The schedule a model's kernel of this look would get."""
    backend = lazy.load("backends.cpu")
    return rules.schedule_kernel(kernel, backend.target(target), kernel.family or None).kernel

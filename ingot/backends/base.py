"""What a back end is: an object that names targets and owns the stages from graph to package.

    class Acme:
        name, device, forms = "acme", "acme", ()
        def target(self, text): …         "acme:v2" → Target: memories, instructions, kept operators
        def why_not_here(self, target): … why its code cannot run on this machine; empty if it can
        def stages(self, target): …       optimised graph → package, as a table

The pipeline of a target is pipeline.COMMON followed by `stages(target)`. A back end builds its
table from the shared functions (fuse, lower, schedule, legalize, plan, …), giving its own fusion
policy, rules, passes, planner and emitter where it has them. docs/add-a-backend.md is a guide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ingot.graph.store import ConstantStore
from ingot.loops.ir import Kernel
from ingot.support.dump import Dump
from ingot.support.limits import Limits
from ingot.support.options import Options, current
from ingot.target import Target


class Backend(Protocol):
    """`device` names the runtime device (runtime/device.py) that runs its packages. A back end may
    also have `exports`, {suffix: function(package, path)}: formats for `ingot compile --save`; and
    `begin(session)`, called before the first stage, to prepare what later stages need."""

    name: str
    device: str
    forms: tuple[str, ...]

    def target(self, text: str) -> Target: ...

    def why_not_here(self, target: Target) -> str: ...

    def stages(self, target: Target) -> tuple[Stage, ...]: ...

    def source(self, kernel: Kernel, form: str, target: Target) -> str:
        """The text of a legal kernel as the emitter prints it; `forms` names those there are."""
        ...


@dataclass
class Session:
    """State that the stages share besides the IR: options, constants, target and dumps."""

    target: Target
    backend: Backend
    stages: tuple[Stage, ...]  # the whole pipeline of the target
    shapes: Mapping[str, Any] = field(default_factory=dict)
    example: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # shapes of the inputs
    outputs: tuple[str, ...] = ()  # values or nodes of the model; (): the model's own outputs
    state: Mapping[str, str] = field(default_factory=dict)
    capacity: int | Mapping[str, int] | None = None  # rows of states that grow
    kernels: Mapping[str, Any] = field(default_factory=dict)
    options: Options = field(default_factory=current)
    jobs: int | None = None
    profile: bool = False
    limits: Limits = field(default_factory=Limits)
    store: ConstantStore = field(default_factory=ConstantStore)
    dump: Dump = field(default_factory=Dump)
    fingerprint: str | None = None  # of the graph that is lowered; None: not wanted (refresh.py)
    verified: tuple[Kernel, ...] = ()  # the kernels of the stage before, which passed the verifier


@dataclass(frozen=True)
class Stage:
    """One row of a pipeline: run(ir, session) → ir, the kinds of IR in and out, what it does."""

    name: str
    run: Callable[[Any, Session], Any]
    takes: str
    gives: str
    what: str

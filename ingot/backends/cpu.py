"""The CPU back end: LLVM objects for the host or a named CPU target.

Turns a planned program into the runtime's package. Loaded by name through support/lazy.py, since it
needs llvmlite.
"""

from __future__ import annotations

from dataclasses import replace

from ingot import dtypes
from ingot import target as targets
from ingot.backends.chunks import chunk_launches
from ingot.backends.packaging import cpu_module, package
from ingot.backends.report import report, summarize_kernels
from ingot.codegen import llvm, llvm_object
from ingot.cost import contraction as cost
from ingot.graph.store import ConstantStore
from ingot.program import ir
from ingot.runtime.cpu.pool import usable_cores
from ingot.runtime.package import Package
from ingot.runtime.report import MachineModel
from ingot.support.identity import cpu_caches
from ingot.support.limits import Limits


class CpuBackend:
    name = "cpu"

    def target(self, text: str) -> targets.Target:
        """The target named `text`; "cpu" is the host."""
        return targets.parse(text, host())

    def why_not_here(self, target: targets.Target) -> str:
        """Why code for `target` cannot run on this machine; empty if it can."""
        triple, _, flags = llvm_object.host()
        if target.architecture != triple.partition("-")[0]:
            return f"it is {target.architecture} code, this machine is {triple.partition('-')[0]}"
        absent = {flag[1:] for flag in flags.split(",") if flag.startswith("-")}
        missing = [feature for feature in target.features if feature in absent]
        return f"this machine lacks {', '.join(missing)}" if missing else ""

    def build(
        self,
        program: ir.Program,
        store: ConstantStore,
        target: targets.Target,
        jobs: int | None,
        profile: bool = False,
        limits: Limits | None = None,
    ) -> Package:
        """A planned program → package; `profile` compiles cycle counters in."""
        limits = limits or Limits()
        summaries = summarize_kernels(program)
        program = chunk_launches(program, summaries)
        objects = llvm.compile_program(program, target, jobs, profile, limits)
        modules = (cpu_module(program, objects, target),)
        made = package(program, store, modules, report(program, summaries))
        notes = tuple(limits.notes)
        return replace(made, notes=notes, machine_model=machine_model(target))


def machine_model(target: targets.Target) -> MachineModel:
    """The roofline model of one core of the target, from cost/contraction.py."""
    found = cost.machine_model(
        target.lanes(dtypes.f32), any(map(target.has, targets.FMA)), target.caches
    )
    return MachineModel(found.flops_per_ns, found.lanes, found.levels)


def host() -> targets.HostFeatures:
    triple, _, flags = llvm_object.host()
    features = tuple(sorted(f[1:] for f in flags.split(",") if f.startswith("+")))
    # features are listed one by one: the base CPU must not imply one that the hypervisor hides
    cpu = "x86-64" if triple.startswith("x86_64") else "generic"
    return targets.HostFeatures(triple, cpu, features, usable_cores(), cpu_caches())


BACKEND = CpuBackend()

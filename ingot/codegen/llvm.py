"""A planned program → object bytes through LLVM: one object per distinct kernel, one for the entry.

In: Program, Target. Out: Objects. Called by backends/cpu.py. Each object is closed: the entry
calls kernels through ctx's table, so no object has an undefined symbol.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial

from ingot.codegen import llvm_object
from ingot.codegen.kernel_cache import compile_cached
from ingot.codegen.llvm_kernel import print_kernel
from ingot.codegen.llvm_program import print_entry
from ingot.codegen.workers import Job, MachineSpec, compile_all
from ingot.loops import ir as loops
from ingot.program import ir
from ingot.runtime.cpu.native.probe import probe_text
from ingot.runtime.cpu.native.support import support_text
from ingot.support import options
from ingot.support.abi import ENTRY, KERNEL
from ingot.support.limits import Limits
from ingot.target import Target

VERSION = llvm_object.VERSION
QUICK_LEVEL = 1  # LLVM's optimisation level, 0 to 3, once a compile-time limit is reached
BATCH = 4  # jobs per process between two checks of the limits; heuristic


@dataclass(frozen=True)
class Objects:
    kernels: tuple[bytes, ...]  # in the order of program.kernels
    entry: bytes
    support: bytes
    probe: bytes | None  # roofline probes, only of a profiled program


def machine_of(target: Target) -> MachineSpec:
    return MachineSpec(
        target.triple, target.cpu, target.feature_string, options.current().opt_level
    )


def kernel_text(kernel: loops.Kernel) -> str:
    return print_kernel(kernel, KERNEL, options.current().stack_limit_bytes)


def entry_text(program: ir.Program, target: Target, profile: bool = False) -> str:
    return print_entry(program, ENTRY, target.triple, options.current().spin_count, profile)


def compile_program(
    program: ir.Program,
    target: Target,
    processes: int | None,
    profile: bool = False,
    limits: Limits | None = None,
) -> Objects:
    jobs = [Job(f"kernel {name}", kernel_text(kernel)) for name, kernel in program.kernels]
    jobs.append(Job("the entry", entry_text(program, target, profile)))
    counts = options.current().spin_count, options.current().yield_count
    jobs.append(Job("the runtime support", support_text(target.triple, *counts)))
    if profile:
        jobs.append(Job("the roofline probe", probe_text(target)))
    count = processes or options.current().jobs or os.cpu_count() or 1
    done = _compile(jobs, machine_of(target), count, limits or Limits())
    first = len(program.kernels)
    probe = done[first + 2] if profile else None
    return Objects(tuple(done[:first]), done[first], done[first + 1], probe)


def _compile(jobs: list[Job], machine: MachineSpec, count: int, limits: Limits) -> list[bytes]:
    """Compile all jobs at once. With a limit, compile in batches, and lower the optimisation level
    once it is reached."""
    at_once = BATCH * count if limits.is_set else len(jobs)
    made: list[bytes] = []
    while len(made) < len(jobs):
        reached = limits.reached()
        if reached and machine.level > QUICK_LEVEL:
            left = len(jobs) - len(made)
            limits.note(f"{reached}: LLVM -O{QUICK_LEVEL} for {left} of {len(jobs)} objects")
            machine = replace(machine, level=QUICK_LEVEL)
        batch = jobs[len(made) : len(made) + at_once]
        compile_jobs = partial(compile_all, machine=machine, processes=count)
        made += compile_cached(batch, machine, compile_jobs)
    return made


def kernel_assembly(kernel: loops.Kernel, target: Target) -> str:
    machine = machine_of(target)
    return llvm_object.assembly(
        kernel_text(kernel), machine.triple, machine.cpu, machine.features, machine.level
    )

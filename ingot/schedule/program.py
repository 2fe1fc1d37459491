"""Every kernel of a program by its family's default rule. Called by pipeline.STAGES["schedule"].

Past a limit, those that are left get a plain schedule: it is cheap to make and its code is short.
"""

from __future__ import annotations

from ingot.loops.ir import Kernel
from ingot.program import ir
from ingot.schedule.rules import schedule_kernel, schedule_plainly
from ingot.support.limits import Limits
from ingot.target import Target


def schedule_program(
    program: ir.Program, target: Target, limits: Limits | None = None
) -> ir.Program:
    limits = limits or Limits()
    kernels: list[tuple[str, Kernel]] = []
    plain: list[str] = []
    reached = ""
    for name, kernel in program.kernels:
        reached = reached or limits.reached()
        if reached:
            plain.append(name)
            kernels.append((name, schedule_plainly(kernel).kernel))
        else:
            made = schedule_kernel(kernel, target, kernel.family or None)
            kernels.append((name, made.kernel))
    if plain:
        some = ", ".join(plain[:8]) + (", …" if len(plain) > 8 else "")
        limits.note(f"{reached}: {len(plain)} of {len(kernels)} kernels are left plain ({some})")
    return ir.replace(program, kernels=tuple(kernels))

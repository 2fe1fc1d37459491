"""Schedule every kernel of a program by its family's rule. Called by pipeline.STAGES["schedule"].

Past a compile-time limit, the remaining kernels get a minimal schedule: it is cheap to make and its
code is short.
"""

from __future__ import annotations

from ingot.loops.ir import Kernel
from ingot.program import ir
from ingot.schedule.rules import Rules, apply_rules, schedule_minimal
from ingot.support.limits import Limits
from ingot.target import Target


def schedule_program(
    program: ir.Program, target: Target, rules: Rules, limits: Limits | None = None
) -> ir.Program:
    """`rules` is the back end's table."""
    limits = limits or Limits()
    kernels: list[tuple[str, Kernel]] = []
    minimal: list[str] = []
    reached = ""
    for name, kernel in program.kernels:
        reached = reached or limits.reached()
        if reached:
            minimal.append(name)
            kernels.append((name, schedule_minimal(kernel, rules).finished()))
        else:
            kernels.append((name, apply_rules(kernel, target, kernel.family, rules).finished()))
    if minimal:
        some = ", ".join(minimal[:8]) + (", …" if len(minimal) > 8 else "")
        limits.note(
            f"{reached}: {len(minimal)} of {len(kernels)} kernels have a minimal schedule ({some})"
        )
    return ir.replace(program, kernels=tuple(kernels))

"""Schedule every kernel of a program by its family's rule. Called by pipeline.STAGES["schedule"].

Past a compile-time limit, the remaining kernels get a minimal schedule: it is cheap to make and its
code is short.
"""

from __future__ import annotations

from functools import partial

from ingot.loops.ir import Kernel
from ingot.program import ir
from ingot.schedule.rules import Rules, apply_rules, schedule_minimal
from ingot.support.limits import Limits
from ingot.support.mapping import Map, map_here
from ingot.target import Target


def schedule_program(
    program: ir.Program,
    target: Target,
    rules: Rules,
    limits: Limits | None = None,
    map_kernels: Map = map_here,
    batch: int = 1,
) -> ir.Program:
    """`rules` is the back end's table; `map_kernels` may use other processes; `batch`: the kernels
    that are scheduled between two checks of the limits."""
    limits = limits or Limits()
    names = [name for name, _ in program.kernels]
    kernels: list[Kernel] = []
    at_once = batch if limits.is_set else len(names)
    reached = ""
    while len(kernels) < len(names) and not (reached := limits.reached()):
        some = program.kernels[len(kernels) : len(kernels) + at_once]
        kernels += map_kernels(partial(_scheduled, target=target, rules=rules), some)
    minimal = names[len(kernels) :]
    if minimal:
        listed = ", ".join(minimal[:8]) + (", …" if len(minimal) > 8 else "")
        count = f"{len(minimal)} of {len(names)} kernels"
        limits.note(f"{reached}: {count} have a minimal schedule ({listed})")
        kernels += [schedule_minimal(program.kernel_map[n], rules).finished() for n in minimal]
    return ir.replace(program, kernels=tuple(zip(names, kernels)))


def _scheduled(kernel: Kernel, target: Target, rules: Rules) -> Kernel:
    return apply_rules(kernel, target, kernel.family, rules).finished()

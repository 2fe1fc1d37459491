"""Every kernel of a program by its family's default rule. Called by pipeline.STAGES["schedule"]."""

from __future__ import annotations

from ingot.program import ir
from ingot.schedule.rules import schedule_kernel
from ingot.target import Target


def schedule_program(program: ir.Program, target: Target) -> ir.Program:
    kernels = [
        (name, schedule_kernel(kernel, target, kernel.family or None).kernel)
        for name, kernel in program.kernels
    ]
    return ir.replace(program, kernels=tuple(kernels))

"""The estimated work and time of launches, by the arithmetic and the bytes of their kernels.

In: a program with legal kernels. Out: expressions over the program's symbols. The plan's chunks,
the report and the number of threads that a run wakes use it; thresholds only, so it is rough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.arith.simplify import simplify
from ingot.loops.ir import Kernel
from ingot.loops.work import accessed_bytes, data_dependent_loops, kernel_flops
from ingot.machine import Machine
from ingot.program import ir

DATA_LOOP_NS = 2  # of a loop whose length depends on data: an offer to TopK's heap, mostly refused


@dataclass(frozen=True)
class LaunchWork:
    """Float operations (None: unknown) and the bytes of all arguments of one launch, or those that
    it reads and writes if these are fewer; and how often it enters a loop that data end."""

    flops: arith.Expr | None
    arg_bytes: arith.Expr
    data_loops: arith.IntLike = 0


def launch_work(kernel: Kernel, buffers: Mapping[str, ir.Buffer], launch: ir.Launch) -> LaunchWork:
    flops, held = kernel_flops(kernel), arith.wrap(0)
    accessed = accessed_bytes(kernel, *(p.name for p in kernel.params))
    sizes = dict(zip((size.name for size in kernel.sizes), launch.sizes))
    for name, param in dict(zip(launch.args, kernel.params)).items():
        size = buffers[name].size_bytes
        if buffers[name].storage is ir.Storage.STATE:  # it may be far from full
            used = accessed_bytes(kernel, param.name)
            size = size if used is None else arith.minimum(arith.substitute(used, sizes), size)
        held = held + size
    known = None if flops is None else simplify(arith.substitute(flops, sizes))
    if accessed is not None:
        held = arith.minimum(held, arith.substitute(accessed, sizes))
    loops = simplify(arith.substitute(data_dependent_loops(kernel), sizes))
    return LaunchWork(known, simplify(held), loops)


def total_ns(works: Sequence[LaunchWork], machine: Machine) -> arith.Expr | None:
    """Time of all launches on one thread; None if one of them cannot be estimated."""
    total: arith.Expr = arith.Const(0)
    flops, moved = int(machine.typical_flops_per_ns), int(machine.core_memory_bytes_per_ns)
    for work in works:
        if work.flops is None:
            return None
        total = total + work.flops // flops + work.arg_bytes // moved
        total = total + work.data_loops * DATA_LOOP_NS
    return total

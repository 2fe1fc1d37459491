"""Chunk sizes for work stealing. In: a planned program, the machine. Out: it, with `chunks` set.

Each thread's range of a launch is split into chunks, so that an idle thread can steal from a busy
one (runtime/cpu/native/work_stealing.py). A chunk costs a call and an atomic update of a shared
counter, so it must not be too short: program/estimate.py estimates how long a launch takes. With
dynamic sizes the number of chunks is an expression, which a run evaluates: a launch that is short
at the sizes of the call has none, and thread 0 runs it. A stage of back ends whose threads steal
work.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.machine import Machine
from ingot.program import ir
from ingot.program.estimate import launch_work, total_ns
from ingot.program.tables import map_launches
from ingot.support import options

CHUNK_NS = 4000  # least estimated time of a chunk, about 50 times its overhead; heuristic
DYNAMIC_CHUNKS = 8  # most for a launch with dynamic dimensions; heuristic


def chunk_launches(program: ir.Program, machine: Machine) -> ir.Program:
    """Set the chunks of every launch, for two threads of the machine."""
    kernels, buffers = program.kernel_map, program.buffer_map

    def chunked(s: ir.Launch) -> ir.Stmt:
        estimate = total_ns([launch_work(kernels[s.kernel], buffers, s)], machine)
        return ir.replace(s, chunks=arith.wrap(_chunks(s.extent, estimate)))

    return ir.replace(program, body=map_launches(program.body, chunked))


def _chunks(extent: arith.Expr, estimate: arith.Expr | None) -> arith.IntLike:
    iterations = arith.as_int(extent)
    if iterations == 1:
        return 1
    time_ns = None if estimate is None else arith.as_int(estimate)
    most = options.current().chunks  # the barrier waits for the last chunk
    most = most if iterations is None else min(most, iterations)
    if time_ns is None and estimate is not None:
        chunks = arith.minimum((estimate + CHUNK_NS) // (2 * CHUNK_NS), min(DYNAMIC_CHUNKS, most))
        # one iteration is not split, and no chunk is empty
        return chunks if iterations is not None else arith.minimum(chunks, extent - 1)
    if time_ns is None:
        return min(DYNAMIC_CHUNKS, most)
    return max(1, min(most, time_ns // (2 * CHUNK_NS)))

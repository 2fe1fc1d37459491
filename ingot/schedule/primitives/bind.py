"""bind: a loop becomes a GPU thread or block index.

    for i in range(64): …   →   for i in range(64): …   [bound to threadIdx.x]

Legal where parallel is: the iterations are proved independent. An index is bound once on the path
from the root to a block, the number of threads of a block is a constant, and buffers in the memory
of one thread (or of one block) are not accessed outside the loop.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.ir import For, Kernel, LoopKind
from ingot.schedule import checks, tree
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import Result, put, raise_if
from ingot.schedule.primitives.parallel import escapes

BLOCKS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREADS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
MAX_THREADS = 1024  # per block; the CUDA limit


def bind(kernel: Kernel, loop: For, tag: str) -> Result:
    what = f"bind({loop.var}, {tag!r})"
    raise_if(kernel, loop, what, checks.expect_serial(loop) or _bad_tag(loop, tag))
    raise_if(kernel, loop, what, _nested(kernel, loop, tag))
    raise_if(kernel, loop, what, checks.independent(kernel, loop, private=True))
    bound = ir.replace(loop, kind=LoopKind.BOUND, tag=tag)
    raise_if(kernel, loop, what, escapes(kernel, bound))
    return put(kernel, loop, bound), []


def _bad_tag(loop: For, tag: str) -> Problem | None:
    if tag not in (*BLOCKS, *THREADS):
        return Problem(f"there is no index {tag!r}", f"one of: {', '.join((*BLOCKS, *THREADS))}")
    if tag in BLOCKS:
        return None
    extent = arith.as_int(loop.extent)
    if extent is None:
        why = f"its extent {loop.extent} is dynamic"
        return Problem(why, "split it, and bind the inner loop to threads")
    if extent > MAX_THREADS:
        why = f"{extent} threads exceed the limit of a block"
        return Problem(why, f"split it; at most {MAX_THREADS}")
    return None


def _nested(kernel: Kernel, loop: For, tag: str) -> Problem | None:
    inside = [s for s in visit.walk_stmts(loop.body) if isinstance(s, For)]
    for other in (*tree.loops_above(kernel.body, loop), *inside):
        if other.tag == tag:
            return Problem(f"{other.var} on the same path is bound to {tag}", "bind another index")
        is_outside = other not in inside
        if other.kind is LoopKind.PARALLEL or (is_outside and other.kind is LoopKind.VECTOR):
            where = "inside" if is_outside else "around"
            why = f"it is {where} {other.var}, which is {other.kind.value}"
            return Problem(why, "schedule a nest either for CPU threads or for a GPU")
    return None

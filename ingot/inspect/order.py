"""Does the order of iterations matter where a schedule says that it does not?

In: a program. Out: the same with every parallel and every vector loop run backwards. Its outputs
are equal within rounding if the marks are right; the interpreter runs such loops in order, so that
a wrong mark would show only in compiled code. Lanes that a block sums (the terms of a dot product)
keep their order: the first of them initialises the sum. Called by stages.py.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import ir as loops
from ingot.loops import visit
from ingot.program import ir

_FREE = (loops.LoopKind.PARALLEL, loops.LoopKind.VECTOR)


def backwards(program: ir.Program) -> ir.Program | None:
    """None if there is no such loop."""
    kernels = tuple((name, _backwards(kernel)) for name, kernel in program.kernels)
    return None if kernels == program.kernels else ir.replace(program, kernels=kernels)


def _backwards(kernel: loops.Kernel) -> loops.Kernel:
    return loops.replace(kernel, body=visit.map_stmt(kernel.body, _reversed))


def _reversed(s: loops.Stmt) -> loops.Stmt:
    if not isinstance(s, loops.For) or s.kind not in _FREE or _is_sum_of_lanes(s):
        return s
    opposite = s.start + s.stop - 1 - arith.Var(s.var)
    return loops.replace(s, body=visit.substitute(s.body, {s.var: opposite}))


def _is_sum_of_lanes(loop: loops.For) -> bool:
    axes = (axis for block in visit.blocks(loop.body) for axis in block.axes)
    reduced = [a.binding for a in axes if a.kind is loops.AxisKind.REDUCE]
    is_reduced = any(loop.var in visit.index_vars(binding) for binding in reduced)
    return loop.kind is loops.LoopKind.VECTOR and is_reduced

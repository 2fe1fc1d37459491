"""What a legal kernel needs from its caller besides arguments: scratch memory, failure reasons.

The printer and the planner must agree on both, so they are derived here from the kernel alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.loops import ir, visit

ALIGNMENT = 64  # bytes, of each buffer in scratch: a cache line


@dataclass(frozen=True)
class Scratch:
    """Size of a thread's scratch, and byte offsets of the buffers that do not fit the stack."""

    size_bytes: arith.Expr
    offsets: dict[str, arith.Expr]


def scratch_layout(kernel: ir.Kernel, stack_limit_bytes: int) -> Scratch:
    """Buffers stay on the stack while their total is within the limit; the others use scratch."""
    total: arith.Expr = arith.Const(0)
    offsets: dict[str, arith.Expr] = {}
    on_stack = 0
    for stmt in visit.walk_stmts(kernel.body):
        if not isinstance(stmt, ir.Alloc):
            continue
        size = arith.product(list(stmt.buffer.shape)) * stmt.buffer.dtype.storage_bytes
        number = arith.as_int(size)
        if number is not None and on_stack + number <= stack_limit_bytes:
            on_stack += number
            continue
        offsets[stmt.buffer.name] = total
        total = total + arith.ceildiv(size, ALIGNMENT) * ALIGNMENT
    return Scratch(total, offsets)


def reasons(kernel: ir.Kernel) -> tuple[str, ...]:
    """The distinct reasons of the kernel's Fail statements, in order of appearance; an error's
    number is its index here plus one."""
    fails = (s.reason for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.Fail))
    return tuple(dict.fromkeys(fails))

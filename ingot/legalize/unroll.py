"""Unrolls UNROLL loops. A legalize pass; names bound in the copies are fresh.

It also unrolls serial loops whose variable indexes a REGISTER buffer: such a buffer is a set of
machine registers, so every index into it must become a constant.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.legalize import terms
from ingot.legalize.context import PassContext
from ingot.legalize.copies import copy_stmt
from ingot.loops import ir, visit
from ingot.loops.ir import For, Kernel, LoopKind, Stmt
from ingot.support.errors import IngotError

MAX_COPIES = 512  # iterations; beyond this, code size costs more than the loop branch; heuristic


def unroll(kernel: Kernel, ctx: PassContext) -> Kernel:
    _check_capacity(kernel, ctx)
    register_vars = _register_vars(kernel.body)

    def on_stmt(s: Stmt) -> Stmt:
        if not isinstance(s, For):
            return s
        if s.kind is LoopKind.UNROLL or (s.kind is LoopKind.SERIAL and s.var in register_vars):
            return _unrolled(s, ctx)
        return s

    new = ir.replace(kernel, body=visit.map_stmt(kernel.body, on_stmt))
    _check_registers(new)
    return new


def _unrolled(loop: For, ctx: PassContext) -> Stmt:
    count = arith.as_int(loop.extent)
    if count is None or count > MAX_COPIES:
        if loop.kind is LoopKind.UNROLL:
            ctx.remark(ir.STEP, f"the loop {loop.var} of {loop.extent} is not unrolled")
        return ir.replace(loop, kind=LoopKind.SERIAL)
    copies: list[Stmt] = []
    for n in range(count):
        env = {loop.var: loop.start + n}
        is_last = n == count - 1  # the last copy keeps the names
        copies.append(
            visit.substitute(loop.body, env) if is_last else copy_stmt(loop.body, env, ctx.names)
        )
    return ir.seq(*copies)


def _register_accesses(body: Stmt) -> list[tuple[ir.Buffer, arith.Expr]]:
    found = [(x.buffer, x.indices[0]) for x in visit.loads(body) if x.buffer.scope == ir.REGISTER]
    stores = (x for x in visit.stores(body) if x.buffer.scope == ir.REGISTER)
    return found + [(x.buffer, x.indices[0]) for x in stores]


def _has_registers(body: Stmt) -> bool:
    allocs = (s for s in visit.walk_stmts(body) if isinstance(s, ir.Alloc))
    return any(s.buffer.scope == ir.REGISTER for s in allocs)


def _register_vars(body: Stmt) -> set[str]:
    if not _has_registers(body):
        return set()
    return {v for _, index in _register_accesses(body) for v in terms.index_vars(index)}


def _check_registers(kernel: Kernel) -> None:
    if not _has_registers(kernel.body):
        return
    for buffer, index in _register_accesses(kernel.body):
        if not isinstance(index, arith.Const):
            raise IngotError(
                "bad-schedule",
                f"register buffer {buffer.name} is indexed by {index}",
                where=f"kernel {kernel.name}",
                why="registers have no addresses: after unrolling every index must be a constant",
                hint="unroll the loops around it, or give the buffer thread scope",
            )


def _check_capacity(kernel: Kernel, ctx: PassContext) -> None:
    """Check before unrolling, so that no loop is unrolled for a buffer that does not fit."""
    capacity_bytes = ctx.target.vector_registers * ctx.target.vector_bits // 8
    for s in visit.walk_stmts(kernel.body):
        if isinstance(s, ir.Alloc) and s.buffer.scope == ir.REGISTER:
            _check_buffer(s.buffer, capacity_bytes, kernel.name)


def _check_buffer(buffer: ir.Buffer, capacity_bytes: int, where: str) -> None:
    count = arith.as_int(arith.product(list(buffer.shape)))
    if count is None or count * buffer.dtype.storage_bytes > capacity_bytes:
        raise IngotError(
            "bad-schedule",
            f"{buffer.name} does not fit into registers",
            where=f"kernel {where}",
            why=f"it has {buffer.shape} elements of {buffer.dtype}; the vector registers hold "
            f"{capacity_bytes} bytes",
            hint="choose smaller register tiles",
        )

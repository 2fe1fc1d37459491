"""UNROLL loops written out. A step; names bound in the copies are new.

Serial loops whose variable indexes a REGISTER buffer are written out too: such a buffer is a set of
machine registers, so every index into it must be a number in the end, and must exist.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.legalize import terms
from ingot.legalize.context import Context
from ingot.legalize.copies import copy_stmt
from ingot.loops import ir, visit
from ingot.loops.ir import For, Kernel, LoopKind, Stmt
from ingot.support.errors import IngotError

MAX_COPIES = 512  # beyond this the text outweighs what a branch costs


def unroll(kernel: Kernel, ctx: Context) -> Kernel:
    _check_rooms(kernel, ctx)
    wanted = _register_vars(kernel.body)

    def on_stmt(s: Stmt) -> Stmt:
        if not isinstance(s, For):
            return s
        if s.kind is LoopKind.UNROLL or (s.kind is LoopKind.SERIAL and s.var in wanted):
            return _written_out(s, ctx, kernel.name)
        return s

    new = ir.replace(kernel, body=visit.map_stmt(kernel.body, on_stmt))
    _check_registers(new)
    return new


def _written_out(loop: For, ctx: Context, where: str) -> Stmt:
    count = arith.as_int(loop.extent)
    if count is None or count > MAX_COPIES:
        if loop.kind is LoopKind.UNROLL:
            ctx.notes.append(f"{where}: the loop {loop.var} of {loop.extent} is not written out")
        return ir.replace(loop, kind=LoopKind.SERIAL)
    copies: list[Stmt] = []
    for n in range(count):
        env = {loop.var: loop.start + n}
        last = n == count - 1  # keeps the names
        copies.append(
            visit.substitute(loop.body, env) if last else copy_stmt(loop.body, env, ctx.names)
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
                f"{buffer.name} is in registers, but is indexed by {index}",
                where=f"kernel {kernel.name}",
                why="registers have no addresses: after unrolling every index must be a number",
                hint="unroll the loops around it, or leave the buffer in the thread's memory",
            )


def _check_rooms(kernel: Kernel, ctx: Context) -> None:
    """Before any loop is written out for a buffer that does not fit."""
    room = ctx.target.vector_registers * ctx.target.vector_bits // 8
    for s in visit.walk_stmts(kernel.body):
        if isinstance(s, ir.Alloc) and s.buffer.scope == ir.REGISTER:
            _check_room(s.buffer, room, kernel.name)


def _check_room(buffer: ir.Buffer, room: int, where: str) -> None:
    count = arith.as_int(arith.product(list(buffer.shape)))
    if count is None or count * buffer.dtype.storage_bytes > room:
        raise IngotError(
            "bad-schedule",
            f"{buffer.name} does not fit into registers",
            where=f"kernel {where}",
            why=f"it has {buffer.shape} elements of {buffer.dtype}, there are {room} bytes",
            hint="choose smaller tiles",
        )

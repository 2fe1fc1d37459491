"""Checks that buffers fit into the memories of the target. Called after the last legalize pass.

A target lists its memory scopes with their sizes (target.MemoryScope). Buffers of one scope that
exist at the same time must fit together; a buffer in a scope that the target lacks is an error. The
errors name the buffer, the kernel and the user's node.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.support.errors import IngotError
from ingot.target import MemoryScope, Target


def check_capacities(kernel: ir.Kernel, target: Target) -> None:
    """Raise `limit` for a buffer over its memory's capacity, `bad-target` for an unknown memory."""
    memories = {memory.scope: memory for memory in target.memories}
    pending: list[tuple[ir.Stmt, dict[str, int]]] = [(kernel.body, {})]
    while pending:
        stmt, used = pending.pop()
        if isinstance(stmt, ir.Alloc):
            used = _with(stmt.buffer, used, memories, kernel)
        pending += [(child, used) for child in visit.sub_stmts(stmt)]


def _with(
    buffer: ir.Buffer, used: dict[str, int], memories: dict[str, MemoryScope], kernel: ir.Kernel
) -> dict[str, int]:
    """Bytes in use by scope, once `buffer` exists too."""
    where = f"kernel {kernel.name}" + (f", node {kernel.origin}" if kernel.origin else "")
    memory = memories.get(buffer.scope)
    if memory is None:
        what = f"buffer {buffer.name} is in {buffer.scope!r}, a memory that the target lacks"
        hint = "its memories are " + ", ".join(memories)
        raise IngotError("bad-target", what, where=where, hint=hint)
    if memory.bytes is None:
        return used
    need = arith.as_int(arith.product(list(buffer.shape)) * buffer.dtype.storage_bytes)
    before = used.get(buffer.scope, 0)
    if need is None or before + need > memory.bytes:
        size = "a dynamic size" if need is None else f"{need} bytes"
        in_use = f"; {before} bytes are in use" if before else ""
        raise IngotError(
            "limit",
            f"buffer {buffer.name} needs {size} of {buffer.scope!r}{in_use}",
            where=where,
            why=f"the capacity of {buffer.scope!r} is {memory.bytes} bytes",
            hint="use smaller tiles in the schedule, or keep the buffer in another memory",
        )
    return used | {buffer.scope: before + need}

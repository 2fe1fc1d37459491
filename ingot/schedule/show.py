"""Loop nests as text for error messages: the loops and blocks around a node, marked `← here`.

Not the IR's text form (that is `loops.script`): bodies are left out, only the structure shows.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.ir import Block, For, LoopKind, Stmt
from ingot.support.errors import IngotError

MAX_LINES = 24  # of a nest in an error


def loop_text(loop: For) -> str:
    bounds = f"{loop.stop}" if arith.is_const(loop.start, 0) else f"{loop.start}, {loop.stop}"
    kind = "" if loop.kind is LoopKind.SERIAL else f"  [{loop.kind.value}]"
    return f"for {loop.var} in range({bounds}):{kind}"


def block_text(block: Block) -> str:
    axes = ", ".join(f"{a.var}={a.binding} {a.kind.value}" for a in block.axes)
    return f"block {block.name}({axes})"


def nest_text(root: Stmt, node: For | Block) -> str:
    """The nest around `node`, which is marked with an arrow."""
    lines = list(_lines(_nest_of(root, node), node, 0))
    here = next((n for n, line in enumerate(lines) if line.endswith("← here")), 0)
    first = max(0, min(here - MAX_LINES // 2, len(lines) - MAX_LINES))
    return "\n         ".join(lines[first : first + MAX_LINES])


def _nest_of(root: Stmt, node: For | Block) -> Stmt:
    """The top-level nest around the node."""
    while isinstance(root, ir.Alloc | ir.Seq):
        inside = [s for s in visit.sub_stmts(root) if any(x is node for x in visit.walk_stmts(s))]
        if not inside:
            return node
        root = inside[0]
    return root


def _lines(s: Stmt, node: Stmt, depth: int) -> Iterator[str]:
    todo = [(s, depth)]
    while todo:
        s, depth = todo.pop()
        arrow = "  ← here" if s is node else ""
        match s:
            case For():
                yield "    " * depth + loop_text(s) + arrow
            case Block():
                yield "    " * depth + block_text(s) + arrow
                continue
            case ir.Seq() | ir.Alloc():
                depth -= 1
            case ir.Store():
                continue
            case _:
                yield "    " * depth + type(s).__name__.lower() + arrow
        todo += [(child, depth + 1) for child in reversed(visit.sub_stmts(s))]


def schedule_error(root: Stmt, node: For | Block, what: str, why: str, hint: str) -> IngotError:
    """The error of a failed check, about a loop or block."""
    return IngotError("bad-schedule", what, where=nest_text(root, node), why=why, hint=hint)


def buffer_error(
    kernel: ir.Kernel, buffer: ir.Buffer | None, what: str, why: str, hint: str
) -> IngotError:
    """The same about a buffer; None: the kernel has no such buffer."""
    where = f"kernel {kernel.name}"
    if buffer is not None:
        shape = ", ".join(map(str, buffer.shape))
        where += f": {buffer.name} = alloc({buffer.dtype}[{shape}], {buffer.scope!r})"
    return IngotError("bad-schedule", what, where=where, why=why, hint=hint)

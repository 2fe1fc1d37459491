"""Tree queries and edits: nodes by uid, enclosing loops, program order, fresh names, replacement.

Used by every primitive. No legality checks here.
"""

from __future__ import annotations

from typing import Any

from ingot.loops import ir, visit
from ingot.loops.dependences import top_blocks
from ingot.loops.ir import Block, For, Stmt

Path = tuple[Stmt, ...]  # from the root to the node, both included


def find(root: Stmt, uid: int) -> Path | None:
    """The path to the loop or block with that uid."""
    todo: list[tuple[Stmt, Any]] = [(root, None)]  # a statement, and the entry of the one around it
    while todo:
        entry = todo.pop()
        s = entry[0]
        if isinstance(s, For | Block) and s.uid == uid:
            path: list[Stmt] = []
            while entry is not None:
                path.append(entry[0])
                entry = entry[1]
            return tuple(reversed(path))
        todo += [(child, entry) for child in reversed(visit.sub_stmts(s))]
    return None


def path_to(root: Stmt, node: For | Block) -> Path:
    path = find(root, node.uid)
    assert path is not None, f"{node} is not in the kernel"
    return path


def uids(root: Stmt) -> set[int]:
    return {s.uid for s in visit.walk_stmts(root) if isinstance(s, For | Block)}


def loops_above(root: Stmt, node: For | Block) -> list[For]:
    """The loops around `node`, outermost first."""
    return [s for s in path_to(root, node)[:-1] if isinstance(s, For)]


def loops_between(outer: For, node: For | Block) -> list[For]:
    """The loops strictly inside `outer` around `node`, outermost first."""
    return loops_above(outer.body, node)


def own_nest(root: Stmt, block: Block) -> Stmt:
    """The largest chain of loops around `block` that holds nothing else."""
    path = path_to(root, block)
    top: Stmt = block
    for parent in reversed(path[:-1]):
        if not isinstance(parent, For):
            break
        top = parent
    return top


def chain(outer: For, inner: For) -> list[For] | None:
    """outer, …, inner if each loop's body is exactly the next loop."""
    found = [outer]
    while found[-1] is not inner:
        body = found[-1].body
        if not isinstance(body, For):
            return None
        found.append(body)
    return found


def common_loop(root: Stmt, a: Block, b: Block) -> For | None:
    """The innermost loop around both."""
    common = [
        x for x, y in zip(path_to(root, a), path_to(root, b)) if x is y and isinstance(x, For)
    ]
    return common[-1] if common else None


def block_order(root: Stmt) -> dict[int, int]:
    """uid of each block → its position in program order."""
    return {block.uid: position for position, block in enumerate(top_blocks(root))}


def allocated(root: Stmt, name: str) -> ir.Alloc | None:
    for s in visit.walk_stmts(root):
        if isinstance(s, ir.Alloc) and s.buffer.name == name:
            return s
    return None


def names(kernel: ir.Kernel) -> set[str]:
    """Every name bound anywhere in the kernel."""
    found = {p.name for p in kernel.params} | {s.name for s in kernel.sizes}
    for s in visit.walk_stmts(kernel.body):
        match s:
            case For(var=var):
                found.add(var)
            case ir.Let(name=name):
                found.add(name)
            case ir.Alloc(buffer=buffer):
                found.add(buffer.name)
            case Block(axes=axes):
                found |= {axis.var for axis in axes}
    return found


class FreshNames:
    """Fresh names for one rewrite: the same kernel gives the same names, so traces replay."""

    def __init__(self, kernel: ir.Kernel):
        self.taken = names(kernel)

    def fresh(self, base: str) -> str:
        name, count = base, 1
        while name in self.taken:
            count += 1
            name = f"{base}_{count}"
        self.taken.add(name)
        return name


def put(root: Stmt, old: Stmt, new: Stmt | None) -> Stmt:
    """`root` with the object `old` replaced by `new`, or taken out of its Seq."""
    return visit.replace_stmt(root, old, new)


def drop_unused_allocs(root: Stmt) -> Stmt:
    """Without the allocations of buffers that nothing accesses."""
    used = visit.read(root) | visit.written(root)
    allocs = [s for s in visit.walk_stmts(root) if isinstance(s, ir.Alloc)]
    for alloc in allocs:  # outer ones first: replacing one keeps the nodes inside it
        if alloc.buffer.name not in used:
            root = visit.replace_stmt(root, alloc, alloc.body)
    return root


def body_stmts(s: Stmt) -> list[Stmt]:
    return list(s.stmts) if isinstance(s, ir.Seq) else [s]

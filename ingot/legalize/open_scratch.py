"""Scratch whose size only the run knows: a thread cannot own it, since it is reserved beforehand.

    parallel p in E: alloc t[n]: … t[i] …   →   parallel p in E: … t[p*n + i] …

where t, of E*n elements, is a temporary of the program that a Reserve makes once n is bound. In: a
program of legal kernels. Out: the same without allocations of such sizes. Last act of legalize.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import ir as loops
from ingot.loops import visit
from ingot.program import ir
from ingot.program.tables import walk


def open_sizes(program: ir.Program) -> dict[str, set[str]]:
    """Kernel → its sizes that some launch takes from a symbol bound while running, unbounded."""
    symbols = {s.name for s in program.symbols if s.source == "node" and s.high is None}
    found: dict[str, set[str]] = {name: set() for name, _ in program.kernels}
    for s in walk(program.body):
        if isinstance(s, ir.Launch):
            sizes = program.kernel_map[s.kernel].sizes
            pairs = zip(sizes, s.sizes)
            found[s.kernel] |= {size.name for size, e in pairs if arith.free_vars(e) & symbols}
    return found


def lift(kernel: loops.Kernel, sizes: set[str]) -> loops.Kernel:
    """The kernel with its allocations of open size as first parameters, a part for each turn."""
    turn, turns = _turns(kernel.body)
    parts: dict[str, arith.Expr] = {}
    new: dict[str, loops.Buffer] = {}
    for s in visit.walk_stmts(kernel.body):
        if isinstance(s, loops.Alloc) and _is_open(s.buffer, sizes):
            parts[s.buffer.name] = turn * s.buffer.shape[0]
            shape = (turns * s.buffer.shape[0],)
            new[s.buffer.name] = loops.replace(s.buffer, shape=shape, scope=loops.GLOBAL)
    if not new:
        return kernel
    body = visit.map_stmt(
        kernel.body, lambda s: _stmt(s, new, parts), lambda e: _expr(e, new, parts)
    )
    return loops.replace(kernel, params=(*new.values(), *kernel.params), body=body)


def _is_open(buffer: loops.Buffer, sizes: set[str]) -> bool:
    """Boxes that instructions work on are not flat, and are tiles of fixed size."""
    return buffer.rank == 1 and bool(arith.free_vars(buffer.shape[0]) & sizes)


def _turns(body: loops.Stmt) -> tuple[arith.Expr, arith.Expr]:
    """Which iteration of the parallel loop this is, and how many there are."""
    while isinstance(body, loops.Let | loops.Alloc):
        body = body.body
    if isinstance(body, loops.For) and body.kind is loops.LoopKind.PARALLEL:
        return arith.Var(body.var), body.stop
    return arith.Const(0), arith.Const(1)


def _stmt(s: loops.Stmt, new: dict[str, loops.Buffer], parts: dict[str, arith.Expr]) -> loops.Stmt:
    match s:
        case loops.Alloc(buffer=buffer, body=body) if buffer.name in new:
            return body
        case loops.Store(buffer=buffer, indices=(i,)) if buffer.name in new:
            return loops.replace(s, buffer=new[buffer.name], indices=(parts[buffer.name] + i,))
    return s


def _expr(e: loops.Expr, new: dict[str, loops.Buffer], parts: dict[str, arith.Expr]) -> loops.Expr:
    match e:
        case loops.Load(buffer=buffer, indices=(i,)) if buffer.name in new:
            return loops.replace(e, buffer=new[buffer.name], indices=(parts[buffer.name] + i,))
    return e

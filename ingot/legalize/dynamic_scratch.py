"""Scratch of data-dependent size: a thread cannot own it, since its memory is reserved beforehand.

    parallel p in E: alloc t[n]: … t[i] …   →   parallel p in E: … t[p*n + i] …

where t, of E*n elements, is a temporary of the program that a Reserve allocates once n is known.
In: a program of legal kernels. Out: the same without such allocations. Runs after the passes.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import ir as loops
from ingot.loops import visit
from ingot.program import ir
from ingot.program.tables import walk


def data_dependent_sizes(program: ir.Program) -> dict[str, set[str]]:
    """Kernel → its sizes that some launch binds to an unbounded data-dependent symbol."""
    symbols = {s.name for s in program.symbols if s.source == "node" and s.high is None}
    found: dict[str, set[str]] = {name: set() for name, _ in program.kernels}
    for s in walk(program.body):
        if isinstance(s, ir.Launch):
            sizes = program.kernel_map[s.kernel].sizes
            pairs = zip(sizes, s.sizes)
            found[s.kernel] |= {size.name for size, e in pairs if arith.free_vars(e) & symbols}
    return found


def hoist_allocs(kernel: loops.Kernel, sizes: set[str]) -> loops.Kernel:
    """The kernel with its allocations of dynamic size as first parameters, one slice for each
    iteration of the parallel loop."""
    iteration, iterations = _parallel_iteration(kernel.body)
    offsets: dict[str, arith.Expr] = {}
    new: dict[str, loops.Buffer] = {}
    for s in visit.walk_stmts(kernel.body):
        if isinstance(s, loops.Alloc) and _has_dynamic_size(s.buffer, sizes):
            offsets[s.buffer.name] = iteration * s.buffer.shape[0]
            shape = (iterations * s.buffer.shape[0],)
            new[s.buffer.name] = loops.replace(s.buffer, shape=shape, scope=loops.GLOBAL)
    if not new:
        return kernel
    body = visit.map_stmt(
        kernel.body, lambda s: _stmt(s, new, offsets), lambda e: _expr(e, new, offsets)
    )
    return loops.replace(kernel, params=(*new.values(), *kernel.params), body=body)


def _has_dynamic_size(buffer: loops.Buffer, sizes: set[str]) -> bool:
    """Boxes that instructions access are not flat; they are tiles of constant size."""
    return buffer.rank == 1 and bool(arith.free_vars(buffer.shape[0]) & sizes)


def _parallel_iteration(body: loops.Stmt) -> tuple[arith.Expr, arith.Expr]:
    """(the iteration of the parallel loop, its extent)"""
    while isinstance(body, loops.Let | loops.Alloc):
        body = body.body
    if isinstance(body, loops.For) and body.kind is loops.LoopKind.PARALLEL:
        return arith.Var(body.var), body.stop
    return arith.Const(0), arith.Const(1)


def _stmt(
    s: loops.Stmt, new: dict[str, loops.Buffer], offsets: dict[str, arith.Expr]
) -> loops.Stmt:
    match s:
        case loops.Alloc(buffer=buffer, body=body) if buffer.name in new:
            return body
        case loops.Store(buffer=buffer, indices=(i,)) if buffer.name in new:
            return loops.replace(s, buffer=new[buffer.name], indices=(offsets[buffer.name] + i,))
    return s


def _expr(
    e: loops.Expr, new: dict[str, loops.Buffer], offsets: dict[str, arith.Expr]
) -> loops.Expr:
    match e:
        case loops.Load(buffer=buffer, indices=(i,)) if buffer.name in new:
            return loops.replace(e, buffer=new[buffer.name], indices=(offsets[buffer.name] + i,))
    return e

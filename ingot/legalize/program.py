"""Legalize over a whole program: separate nests, make each kernel legal, share equal kernels.

In: a program whose kernels are scheduled. Out: one whose kernels a printer can print. Called by
pipeline.STAGES["separate" | "legalize" | "share"].
"""

from __future__ import annotations

from collections.abc import Callable

from ingot.arith import expr as arith
from ingot.legalize import legalize_kernel
from ingot.legalize.open_scratch import lift, open_sizes
from ingot.legalize.separate import separate
from ingot.loops import ir as loops
from ingot.loops.canonical import digest
from ingot.program import ir
from ingot.target import Target


def separate_nests(program: ir.Program) -> ir.Program:
    """launch k  →  launch k_0; launch k_1; …   one for each top-level nest of k"""
    parts = {name: separate(kernel) for name, kernel in program.kernels}
    buffers = dict(program.buffer_map)
    kernels: dict[str, loops.Kernel] = {}

    def expand(s: ir.Launch) -> ir.Stmt:
        whole, pieces = program.kernel_map[s.kernel], parts[s.kernel]
        homes = dict(zip((p.name for p in whole.params), s.args))
        sizes = dict(zip((size.name for size in whole.sizes), s.sizes))
        for temp in pieces.temporaries:
            homes[temp.name] = _temporary(f"{s.kernel}.{temp.name}", temp, sizes, buffers)
        launches = []
        for piece in pieces.kernels:
            kernels[piece.name] = piece
            args = tuple(homes[p.name] for p in piece.params)
            given = tuple(sizes[size.name] for size in piece.sizes)
            launches.append(ir.Launch(piece.name, args, given, origin=s.origin))
        return ir.seq(*launches)

    body = map_launches(program.body, expand)
    return ir.replace(
        program, body=body, kernels=tuple(kernels.items()), buffers=tuple(buffers.values())
    )


def _temporary(
    base: str, temp: loops.Buffer, sizes: dict[str, arith.Expr], buffers: dict[str, ir.Buffer]
) -> str:
    name, count = base, 1
    while name in buffers:
        name, count = f"{base}.{count}", count + 1
    shape = tuple(arith.substitute(d, sizes) for d in temp.shape)
    buffers[name] = ir.Buffer(name, temp.dtype, shape, ir.Storage.TEMP)
    return name


def legalize_program(program: ir.Program, target: Target) -> ir.Program:
    """Every kernel legal, and each launch told how many parallel iterations there are."""
    sizes_of = open_sizes(program)
    kernels = {
        name: lift(legalize_kernel(kernel, target), sizes_of[name])
        for name, kernel in program.kernels
    }
    buffers = dict(program.buffer_map)

    def fitted(s: ir.Launch) -> ir.Stmt:
        kernel = kernels[s.kernel]
        sizes = dict(zip((size.name for size in kernel.sizes), s.sizes))
        lifted = kernel.params[: len(kernel.params) - len(s.args)]
        made = [_temporary(f"{s.kernel}.{p.name}", p, sizes, buffers) for p in lifted]
        extent = arith.substitute(parallel_extent(kernel), sizes)
        return ir.replace(s, args=(*made, *s.args), extent=extent)

    body = map_launches(program.body, fitted)
    return ir.replace(
        program, body=body, kernels=tuple(kernels.items()), buffers=tuple(buffers.values())
    )


def parallel_extent(kernel: loops.Kernel) -> arith.Expr:
    """Iterations of the outermost parallel loop; 1 for a kernel that has none."""
    body = kernel.body
    while isinstance(body, loops.Alloc | loops.Let):
        body = body.body
    if isinstance(body, loops.For) and body.kind is loops.LoopKind.PARALLEL:
        return body.stop
    return arith.Const(1)


def share_kernels(program: ir.Program) -> ir.Program:
    """Kernels equal but for names become one: before scheduling, so that each is scheduled once,
    and again when they are legal."""
    first: dict[tuple[str, str], str] = {}
    names = {
        name: first.setdefault((kernel.family, digest(kernel)), name)
        for name, kernel in program.kernels
    }
    kept = tuple((name, kernel) for name, kernel in program.kernels if names[name] == name)
    body = map_launches(program.body, lambda s: ir.replace(s, kernel=names[s.kernel]))
    return ir.replace(program, body=body, kernels=kept)


def map_launches(s: ir.Stmt, fn: Callable[[ir.Launch], ir.Stmt]) -> ir.Stmt:
    """Rewrite every launch of a statement."""
    match s:
        case ir.Launch():
            return fn(s)
        case ir.Seq(stmts=stmts):
            return ir.seq(*(map_launches(x, fn) for x in stmts))
        case ir.If(then=then, orelse=orelse):
            return ir.replace(s, then=map_launches(then, fn), orelse=map_launches(orelse, fn))
        case ir.Loop(body=body):
            return ir.replace(s, body=map_launches(body, fn))
        case ir.Par(branches=branches):
            return ir.replace(s, branches=tuple(map_launches(b, fn) for b in branches))
    return s

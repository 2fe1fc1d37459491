"""Table indices shared by the generated code and the runtime: buffers, arenas, symbols, kernels.

They are derived from the program alone, so that codegen and the package agree. `walk` visits the
statements of a program, `map_launches` rewrites its launches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce

from ingot.arith import expr as arith
from ingot.loops.frame import scratch_layout
from ingot.program import ir

CONSTANTS = "constants"  # the arena name of constants


@dataclass(frozen=True)
class Tables:
    slots: dict[str, int]  # arrays of the caller: inputs, outputs, state
    dynamics: dict[str, int]
    arenas: dict[str, int]
    symbols: dict[str, int]
    kernels: dict[str, int]
    launches: list[ir.Launch | ir.HostStep | ir.Bind]  # that may fail, in program order
    host_steps: list[ir.HostStep]  # in program order


def tables(program: ir.Program) -> Tables:
    caller = (ir.Storage.INPUT, ir.Storage.OUTPUT, ir.Storage.STATE)
    slots = [b.name for b in program.buffers if b.storage in caller]
    dynamics = [b.name for b in program.buffers if b.storage is ir.Storage.DYNAMIC]
    return Tables(
        number(slots),
        number(dynamics),
        number([a.name for a in program.arenas]),
        number([s.name for s in program.symbols]),
        number([name for name, _ in program.kernels]),
        [s for s in walk(program.body) if isinstance(s, ir.Launch | ir.HostStep | ir.Bind)],
        [s for s in walk(program.body) if isinstance(s, ir.HostStep)],
    )


def number(names: list[str]) -> dict[str, int]:
    return {name: i for i, name in enumerate(names)}


def walk(s: ir.Stmt) -> Iterator[ir.Stmt]:
    """Every statement in program order, parents before children."""
    todo = [s]
    while todo:
        stmt = todo.pop()
        yield stmt
        todo.extend(reversed(children(stmt)))


def children(s: ir.Stmt) -> tuple[ir.Stmt, ...]:
    match s:
        case ir.Seq(stmts=stmts):
            return stmts
        case ir.If(then=then, orelse=orelse) | ir.IfSize(then=then, orelse=orelse):
            return (then, orelse)
        case ir.Loop(body=body):
            return (body,)
        case ir.Par(branches=branches):
            return branches
    return ()


def scratch_bytes(program: ir.Program, stack_limit_bytes: int) -> arith.Expr:
    """The most scratch bytes that any launch needs for a thread; equal needs count once, so that
    the formula of a long program stays short."""
    layouts = {n: scratch_layout(kernel, stack_limit_bytes) for n, kernel in program.kernels}
    kernels = program.kernel_map
    found: dict[arith.Expr, None] = {arith.Const(0): None}
    for s in walk(program.body):
        if isinstance(s, ir.Launch):
            sizes = dict(zip((size.name for size in kernels[s.kernel].sizes), s.sizes))
            found[arith.substitute(layouts[s.kernel].size_bytes, sizes)] = None
    return reduce(arith.maximum, found)


def map_launches(s: ir.Stmt, fn: Callable[[ir.Launch], ir.Stmt]) -> ir.Stmt:
    """Rewrite every launch of a statement."""
    match s:
        case ir.Launch():
            return fn(s)
        case ir.Seq(stmts=stmts):
            return ir.seq(*(map_launches(x, fn) for x in stmts))
        case ir.If(then=then, orelse=orelse) | ir.IfSize(then=then, orelse=orelse):
            return ir.replace(s, then=map_launches(then, fn), orelse=map_launches(orelse, fn))
        case ir.Loop(body=body):
            return ir.replace(s, body=map_launches(body, fn))
        case ir.Par(branches=branches):
            return ir.replace(s, branches=tuple(map_launches(b, fn) for b in branches))
    return s

"""A planned program → one report row for each launch. Called by back ends when they make a package.

Everything is read off the legal kernels: what threads share, the widest access, an estimate of the
arithmetic, and for a kernel left serial or scalar the reason. Any back end that runs loop kernels
can use it; what a row looks like is in runtime/report.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.arith.simplify import simplify
from ingot.backends.slow import Step, why_scalar, why_serial
from ingot.loops import ir, visit
from ingot.program import ir as program_ir
from ingot.program.tables import tables
from ingot.runtime.report import LaunchRow

_ARITHMETIC = ("add", "sub", "mul", "div", "min", "max")
_ONE_OPERATION = ("neg", "abs", "sqrt", "floor", "ceil", "round", "trunc")


@dataclass(frozen=True)
class Facts:
    """Of one kernel, over its own sizes."""

    lanes: int
    tile: str
    flops: arith.Expr | None
    is_parallel: bool
    why_serial: str
    why_scalar: str


def facts_of(program: program_ir.Program) -> dict[str, Facts]:
    """Of every kernel, by its name."""
    return {name: kernel_facts(kernel) for name, kernel in program.kernels}


def report(program: program_ir.Program, facts: Mapping[str, Facts]) -> tuple[LaunchRow, ...]:
    """A row for each launch, in program order."""
    launches = (s for s in tables(program).launches if isinstance(s, program_ir.Launch))
    return tuple(_row(program, s, facts[s.kernel]) for s in launches)


def _row(program: program_ir.Program, s: program_ir.Launch, facts: Facts) -> LaunchRow:
    kernel, buffers = program.kernel_map[s.kernel], program.buffer_map
    sizes = dict(zip((size.name for size in kernel.sizes), s.sizes))
    moved: arith.Expr = arith.Const(0)
    for name in dict.fromkeys(s.args):
        moved = moved + buffers[name].size_bytes
    return LaunchRow(
        kernel=s.kernel,
        origin=s.origin,
        family=kernel.family,
        pieces=s.extent,
        lanes=facts.lanes,
        flops=None if facts.flops is None else simplify(arith.substitute(facts.flops, sizes)),
        arg_bytes=simplify(moved),
        why_serial=facts.why_serial if arith.is_const(s.extent, 1) else "",
        why_scalar=facts.why_scalar,
        tile=facts.tile,
        layouts=_layouts(kernel, [buffers[name].shape for name in s.args]),
    )


def _layouts(kernel: ir.Kernel, shapes: Sequence[tuple[arith.Expr, ...]]) -> str:
    """Shapes as they lie in memory, what is only read before what is written."""
    written = visit.written(kernel.body)
    told = [" x ".join(map(str, shape)) or "1" for shape in shapes]
    sides = [
        ", ".join(text for p, text in zip(kernel.params, told) if (p.name in written) is side)
        for side in (False, True)
    ]
    return " -> ".join(sides).strip()


# what one core of any recent machine does in a nanosecond: rough, and only a threshold hangs on it
_FLOPS_PER_NS, _BYTES_PER_NS = 32, 8


def work_ns(rows: Sequence[LaunchRow]) -> arith.Expr | None:
    """About how long all launches take one thread; None if one of them cannot be estimated."""
    total: arith.Expr = arith.Const(0)
    for row in rows:
        if row.flops is None:
            return None
        total = total + row.flops // _FLOPS_PER_NS + row.arg_bytes // _BYTES_PER_NS
    return total


def kernel_facts(kernel: ir.Kernel) -> Facts:
    """What one legal kernel does, and why not better."""
    all_steps = list(steps(kernel.body))
    lanes = max((_lanes(s.stmt) for s in all_steps), default=1)
    return Facts(
        lanes=lanes,
        tile=_tile(all_steps),
        flops=_flops(all_steps),
        is_parallel=_is_parallel(kernel.body),
        why_serial="" if _is_parallel(kernel.body) else why_serial(kernel, all_steps),
        why_scalar=why_scalar(all_steps, lanes),
    )


def steps(
    s: ir.Stmt, loops: tuple[ir.For | ir.While, ...] = (), is_tail: bool = False
) -> Iterator[Step]:
    """Every statement that does something, with the loops around it, outermost first."""
    match s:
        case ir.Store() | ir.Let() | ir.Fail():
            yield Step(s, loops, is_tail)
    for child in visit.sub_stmts(s):
        inside = (*loops, s) if isinstance(s, ir.For | ir.While) else loops
        # the second branch is the masked tail of the first: estimates count one of the two
        tail = is_tail or (isinstance(s, ir.If) and child is s.orelse)
        yield from steps(child, inside, tail)


def _is_parallel(body: ir.Stmt) -> bool:
    while isinstance(body, ir.Alloc | ir.Let):
        body = body.body
    return isinstance(body, ir.For) and body.kind is ir.LoopKind.PARALLEL


def _lanes(s: ir.Stmt) -> int:
    return max((e.lanes for e in visit.own_exprs(s)), default=1)


def _tile(all_steps: list[Step]) -> str:
    """Results that one innermost loop adds to, rows x columns; a row has a factor of its own."""
    loops: dict[tuple[ir.For | ir.While, ...], list[ir.Store]] = {}
    for step in all_steps:
        s = step.stmt
        if isinstance(s, ir.Store) and _accumulates(s) and not step.is_tail:
            loops.setdefault(step.loops, []).append(s)
    sums = max(loops.values(), key=len, default=[])
    places = {(s.buffer.name, s.indices) for s in sums}
    factors = {e for s in sums for e in visit.walk_exprs(s.value) if isinstance(e, ir.Broadcast)}
    if len(places) < 2:
        return ""
    rows = len(factors) if factors and len(places) % len(factors) == 0 else len(places)
    return f"{rows} x {len(places) // rows * sums[0].value.lanes}"


def _accumulates(s: ir.Store) -> bool:
    """Does it add a product to what was there?"""
    match s.value:
        case ir.Fma(c=ir.Load(buffer=buffer, indices=indices)):
            return buffer == s.buffer and indices == s.indices
    return False


def _flops(all_steps: list[Step]) -> arith.Expr | None:
    """Operations on floats, an FMA being two; None where a trip count is not known before."""
    total: arith.Expr = arith.Const(0)
    for step in all_steps:
        work = 0 if step.is_tail else sum(map(_operations, step.values))
        if work == 0:
            continue
        trips = step.trips
        if trips is None:
            return None
        total = total + trips * work
    return simplify(total)


def _operations(e: ir.Expr) -> int:
    if not e.dtype.is_float:
        return 0
    match e:
        case ir.Fma():
            return 2 * e.lanes
        case ir.Binary(op=op) if op in _ARITHMETIC:
            return e.lanes
        case ir.Unary(op=op) if op in _ONE_OPERATION:
            return e.lanes
        case ir.LaneReduce(a=a):
            return a.lanes - 1
    return 0

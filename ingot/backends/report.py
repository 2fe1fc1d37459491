"""A planned program → one report row for each launch. Called by back ends when they make a package.

Everything is derived from the legal kernels: the parallel extent, the vector width, the register
tile, an estimate of the arithmetic, and why a kernel is not parallel or not vectorised. Any back
end that runs loop kernels can use it; runtime/report.py defines the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.arith.simplify import simplify
from ingot.backends.slow import NestedStmt, why_scalar, why_serial
from ingot.loops import ir, visit
from ingot.program import ir as program_ir
from ingot.program.tables import tables
from ingot.runtime.report import LaunchRow

_ARITHMETIC = ("add", "sub", "mul", "div", "min", "max")
_UNARY_ARITHMETIC = ("neg", "abs", "sqrt", "floor", "ceil", "round", "trunc")


@dataclass(frozen=True)
class KernelSummary:
    """What one legal kernel does, in terms of its sizes."""

    lanes: int
    tile: str
    flops: arith.Expr | None
    is_parallel: bool
    why_serial: str
    why_scalar: str


def summarize_kernels(program: program_ir.Program) -> dict[str, KernelSummary]:
    """Kernel name → its summary."""
    return {name: summarize_kernel(kernel) for name, kernel in program.kernels}


def report(
    program: program_ir.Program, summaries: Mapping[str, KernelSummary]
) -> tuple[LaunchRow, ...]:
    """A row for each launch, in program order."""
    launches = (s for s in tables(program).launches if isinstance(s, program_ir.Launch))
    return tuple(_row(program, s, summaries[s.kernel]) for s in launches)


def _row(program: program_ir.Program, s: program_ir.Launch, summary: KernelSummary) -> LaunchRow:
    kernel, buffers = program.kernel_map[s.kernel], program.buffer_map
    sizes = dict(zip((size.name for size in kernel.sizes), s.sizes))
    moved: arith.Expr = arith.Const(0)
    for name in dict.fromkeys(s.args):
        moved = moved + buffers[name].size_bytes
    return LaunchRow(
        kernel=s.kernel,
        origin=s.origin,
        family=kernel.family,
        parallel_extent=s.extent,
        lanes=summary.lanes,
        flops=None if summary.flops is None else simplify(arith.substitute(summary.flops, sizes)),
        arg_bytes=simplify(moved),
        why_serial=summary.why_serial if arith.is_const(s.extent, 1) else "",
        why_scalar=summary.why_scalar,
        tile=summary.tile,
        layouts=_layouts(kernel, [buffers[name].shape for name in s.args]),
    )


def _layouts(kernel: ir.Kernel, shapes: Sequence[tuple[arith.Expr, ...]]) -> str:
    """Physical shapes: read-only arguments -> written arguments."""
    written = visit.written(kernel.body)
    shape_texts = [" x ".join(map(str, shape)) or "1" for shape in shapes]
    lists = [
        ", ".join(
            text for p, text in zip(kernel.params, shape_texts) if (p.name in written) is is_output
        )
        for is_output in (False, True)
    ]
    return " -> ".join(lists).strip()


# throughput of one core, in float operations and bytes per ns: rough, used only for thresholds
_FLOPS_PER_NS, _BYTES_PER_NS = 32, 8


def work_ns(rows: Sequence[LaunchRow]) -> arith.Expr | None:
    """Estimated single-thread time of all launches; None if one of them cannot be estimated."""
    total: arith.Expr = arith.Const(0)
    for row in rows:
        if row.flops is None:
            return None
        total = total + row.flops // _FLOPS_PER_NS + row.arg_bytes // _BYTES_PER_NS
    return total


def summarize_kernel(kernel: ir.Kernel) -> KernelSummary:
    """The summary of one legal kernel."""
    stmts = list(nested_stmts(kernel.body))
    lanes = max((_lanes(s.stmt) for s in stmts), default=1)
    return KernelSummary(
        lanes=lanes,
        tile=_tile(stmts),
        flops=_flops(stmts),
        is_parallel=_is_parallel(kernel.body),
        why_serial="" if _is_parallel(kernel.body) else why_serial(kernel, stmts),
        why_scalar=why_scalar(stmts, lanes),
    )


def nested_stmts(body: ir.Stmt) -> Iterator[NestedStmt]:
    """Every statement with an effect, and the loops around it, outermost first."""
    todo: list[tuple[ir.Stmt, tuple[ir.For | ir.While, ...], bool]] = [(body, (), False)]
    while todo:
        s, loops, is_tail = todo.pop()
        if isinstance(s, ir.Store | ir.Let | ir.Fail):
            yield NestedStmt(s, loops, is_tail)
        inside = (*loops, s) if isinstance(s, ir.For | ir.While) else loops
        for child in reversed(visit.sub_stmts(s)):
            # the else branch is the masked tail of the then branch: estimates count only one
            tail = is_tail or (isinstance(s, ir.If) and child is s.orelse)
            todo.append((child, inside, tail))


def _is_parallel(body: ir.Stmt) -> bool:
    while isinstance(body, ir.Alloc | ir.Let):
        body = body.body
    return isinstance(body, ir.For) and body.kind is ir.LoopKind.PARALLEL


def _lanes(s: ir.Stmt) -> int:
    return max((e.lanes for e in visit.own_exprs(s)), default=1)


def _tile(stmts: list[NestedStmt]) -> str:
    """The register tile, rows x columns: accumulators of one innermost loop. The rows are the
    distinct broadcast operands."""
    loops: dict[tuple[ir.For | ir.While, ...], list[ir.Store]] = {}
    for nested in stmts:
        s = nested.stmt
        if isinstance(s, ir.Store) and _is_multiply_add(s) and not nested.is_tail:
            loops.setdefault(nested.loops, []).append(s)
    sums = max(loops.values(), key=len, default=[])
    elements = {(s.buffer.name, s.indices) for s in sums}
    factors = {e for s in sums for e in visit.walk_exprs(s.value) if isinstance(e, ir.Broadcast)}
    if len(elements) < 2:
        return ""
    rows = len(factors) if factors and len(elements) % len(factors) == 0 else len(elements)
    return f"{rows} x {len(elements) // rows * sums[0].value.lanes}"


def _is_multiply_add(s: ir.Store) -> bool:
    """Does it accumulate into its target by FMA?"""
    match s.value:
        case ir.Fma(c=ir.Load(buffer=buffer, indices=indices)):
            return buffer == s.buffer and indices == s.indices
    return False


def _flops(stmts: list[NestedStmt]) -> arith.Expr | None:
    """Float operations, an FMA counted as two; None where a trip count is data-dependent."""
    total: arith.Expr = arith.Const(0)
    for nested in stmts:
        work = 0 if nested.is_tail else sum(map(_operations, nested.values))
        if work == 0:
            continue
        trips = nested.trips
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
        case ir.Unary(op=op) if op in _UNARY_ARITHMETIC:
            return e.lanes
        case ir.LaneReduce(a=a):
            return a.lanes - 1
    return 0

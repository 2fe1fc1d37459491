"""A planned program → one report row for each launch. Called by back ends when they make a package.

The parallel extent, the vector width, the register tile and an estimate of the arithmetic are
derived from the legal kernels; the plan, and why a kernel is not parallel or not vectorised, are
what the schedule and legalize recorded on them. Any back end that runs loop kernels can use it;
runtime/report.py defines the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.work import NestedStmt, nested_stmts
from ingot.machine import Machine
from ingot.program import ir as program_ir
from ingot.program.estimate import LaunchWork, launch_work, total_ns
from ingot.program.tables import children, tables
from ingot.runtime.report import LaunchRow
from ingot.support.stack import segmented

MAX_REASONS = 2  # of one kernel, in a cell of the report
AS_WRITTEN = "as written: no rule scheduled it"


@dataclass(frozen=True)
class KernelSummary:
    """What one legal kernel does, in terms of its sizes."""

    lanes: int
    tile: str
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
    return tuple(
        _row(program, s, summaries[s.kernel])
        if isinstance(s, program_ir.Launch)
        else _host_row(program, s)
        for s in _reported(program)
    )


def _reported(program: program_ir.Program) -> list[program_ir.Launch | program_ir.HostStep]:
    """The statements that have a row."""
    kinds = program_ir.Launch | program_ir.HostStep
    return [s for s in tables(program).launches if isinstance(s, kinds)]


def _host_row(program: program_ir.Program, s: program_ir.HostStep) -> LaunchRow:
    sizes = [program.buffer_map[name].size_bytes for name in s.buffers]
    return LaunchRow(
        kernel=s.name,
        origin=s.origin,
        family="host step",
        parallel_extent=arith.Const(1),
        lanes=1,
        flops=arith.Const(0),
        arg_bytes=reduce(arith.add, sizes, arith.wrap(0)),
        why_serial="it is a step of the host, in Python",
    )


def _row(program: program_ir.Program, s: program_ir.Launch, summary: KernelSummary) -> LaunchRow:
    kernel, buffers = program.kernel_map[s.kernel], program.buffer_map
    work = launch_work(kernel, buffers, s)
    return LaunchRow(
        kernel=s.kernel,
        origin=s.origin,
        family=kernel.family,
        parallel_extent=s.extent,
        lanes=summary.lanes,
        flops=work.flops,
        arg_bytes=work.arg_bytes,
        why_serial=summary.why_serial if arith.is_const(s.extent, 1) else "",
        why_scalar=summary.why_scalar,
        tile=summary.tile,
        plan="; ".join(str(plan) for _, plan in kernel.plans),
        remarks=tuple(f"{r.block}: {r.why}" for r in kernel.remarks if r.about == ir.STEP),
        layouts=_layouts(kernel, [buffers[name].shape for name in s.args]),
        why_float="; ".join(r.why for r in kernel.remarks if r.about == ir.IN_FLOAT),
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


def over_iterations(
    program: program_ir.Program, rows: Sequence[LaunchRow]
) -> tuple[LaunchRow, ...]:
    """The rows with the work of all iterations of the loops around a launch, as a profile has their
    time; of one iteration where their number depends on data."""
    counts = dict(_iterations(program.body, arith.Const(1)))
    pairs = zip(_reported(program), rows)
    return tuple(_repeated(row, counts[id(s)]) for s, row in pairs)


def _repeated(row: LaunchRow, count: arith.Expr) -> LaunchRow:
    if arith.is_const(count, 1):
        return row
    flops = None if row.flops is None else row.flops * count
    return replace(row, flops=flops, arg_bytes=row.arg_bytes * count)


@segmented
def _iterations(s: program_ir.Stmt, around: arith.Expr) -> list[tuple[int, arith.Expr]]:
    """Each launch, by identity, with how often a run launches it."""
    if isinstance(s, program_ir.Launch | program_ir.HostStep):
        return [(id(s), around)]
    if isinstance(s, program_ir.Loop) and s.count is not None:
        around = around * s.count
    return [found for each in children(s) for found in _iterations(each, around)]


def work_ns(
    program: program_ir.Program, rows: Sequence[LaunchRow], machine: Machine
) -> arith.Expr | None:
    """Estimated single-thread time of all launches; None if one of them cannot be estimated. Of the
    variants of a kernel, a run launches the one that takes the least."""
    times: dict[int, arith.Expr] = {}
    for s, row in zip(_reported(program), rows):
        steps: arith.Expr = arith.Const(0)
        if isinstance(s, program_ir.Launch):
            steps = launch_work(program.kernel_map[s.kernel], program.buffer_map, s).steps
        time = total_ns([LaunchWork(row.flops, row.arg_bytes, steps)], machine)
        if time is None:
            return None
        times[id(s)] = time
    return _total(program.body, times)


@segmented
def _total(s: program_ir.Stmt, times: Mapping[int, arith.Expr]) -> arith.Expr:
    inside = [_total(each, times) for each in children(s)]
    if isinstance(s, program_ir.IfSize):
        return arith.minimum(*inside)
    return reduce(arith.add, inside, times.get(id(s), arith.Const(0)))


def summarize_kernel(kernel: ir.Kernel) -> KernelSummary:
    """The summary of one legal kernel."""
    stmts = list(nested_stmts(kernel.body))
    lanes = max((s.lanes for s in stmts), default=1)
    return KernelSummary(
        lanes=lanes,
        tile=_tile(stmts),
        is_parallel=_is_parallel(kernel.body),
        why_serial="" if _is_parallel(kernel.body) else _why(kernel, ir.SERIAL_LOOPS),
        why_scalar=_why_scalar(kernel, stmts, lanes),
    )


def _why(kernel: ir.Kernel, about: str) -> str:
    """The reasons that the kernel carries; one that no rule scheduled has none."""
    found = dict.fromkeys(r.why for r in kernel.remarks if r.about == about)
    return ", ".join(list(found)[:MAX_REASONS]) or AS_WRITTEN


def _why_scalar(kernel: ir.Kernel, stmts: Sequence[NestedStmt], lanes: int) -> str:
    """The reason, if most of a kernel's time goes into scalar statements."""
    effects = [s for s in stmts if not isinstance(s.stmt, ir.Let) and not s.is_tail]
    heaviest = max(effects, key=lambda s: s.estimated_trips).lanes if effects else lanes
    if heaviest > 1:
        return ""
    return ("in part: " if lanes > 1 else "") + _why(kernel, ir.SCALAR_CODE)


def _is_parallel(body: ir.Stmt) -> bool:
    while isinstance(body, ir.Alloc | ir.Let):
        body = body.body
    return isinstance(body, ir.For) and body.kind is ir.LoopKind.PARALLEL


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

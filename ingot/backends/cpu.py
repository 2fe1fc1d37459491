"""The CPU back end: LLVM objects for the host or a named CPU target.

Ties the printer and the runtime's package together; loaded by name through support/lazy.py, since
it needs llvmlite.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ingot import dtypes, tiles
from ingot import target as targets
from ingot.arith import expr as arith
from ingot.arith.bounds import Interval, prove
from ingot.backends.parts import cut_launches
from ingot.backends.report import facts_of, report, work_ns
from ingot.codegen import llvm, llvm_object, llvm_probe
from ingot.graph.ir import ConstRef
from ingot.graph.store import ConstantStore
from ingot.loops.frame import reasons, scratch_layout
from ingot.program import ir
from ingot.program.tables import Tables, tables
from ingot.runtime.package import (
    ArenaSpec,
    LaunchInfo,
    Package,
    Place,
    Port,
    Probe,
    SizeSymbol,
)
from ingot.runtime.pool import usable_cores
from ingot.runtime.report import LaunchRow, Pace
from ingot.support import knobs
from ingot.support.abi import ALIGNMENT
from ingot.support.identity import cpu_caches
from ingot.support.limits import Limits


class CpuBackend:
    name = "cpu"

    def target(self, text: str) -> targets.Target:
        """The target called `text`; "cpu" is this machine."""
        return targets.parse(text, host())

    def why_not_here(self, target: targets.Target) -> str:
        """Why code for `target` cannot run on this machine; empty if it can."""
        triple, _, flags = llvm_object.host()
        if target.architecture != triple.partition("-")[0]:
            return f"it is {target.architecture} code, this machine is {triple.partition('-')[0]}"
        absent = {flag[1:] for flag in flags.split(",") if flag.startswith("-")}
        missing = [feature for feature in target.features if feature in absent]
        return f"this machine lacks {', '.join(missing)}" if missing else ""

    def build(
        self,
        program: ir.Program,
        store: ConstantStore,
        target: targets.Target,
        jobs: int | None,
        profile: bool = False,
        limits: Limits | None = None,
    ) -> Package:
        """A planned program → everything the runtime needs; `profile` puts cycle counters in."""
        limits = limits or Limits()
        facts = facts_of(program)
        program = cut_launches(program, facts)
        objects = llvm.compile_program(program, target, jobs, profile, limits)
        probe = None
        if objects.probe is not None:
            probe = Probe(objects.probe, llvm_probe.flops_per_turn(target), target.caches)
        made = package(program, store, objects, report(program, facts))
        return replace(
            made,
            probe=probe,
            features=target.features,
            notes=tuple(limits.notes),
            pace=pace(target),
        )


def pace(target: targets.Target) -> Pace:
    """What tiles.py takes one core of the target to do."""
    found = tiles.pace(target.lanes(dtypes.f32), any(map(target.has, targets.FMA)), target.caches)
    return Pace(found.flops_per_ns, found.lanes, found.levels)


def host() -> targets.HostFeatures:
    triple, _, flags = llvm_object.host()
    features = tuple(sorted(f[1:] for f in flags.split(",") if f.startswith("+")))
    # the features are spelled out, so the base CPU must not imply one that a hypervisor hides
    cpu = "x86-64" if triple.startswith("x86_64") else "generic"
    return targets.HostFeatures(triple, cpu, features, usable_cores(), cpu_caches())


def package(
    program: ir.Program, store: ConstantStore, objects: llvm.Objects, rows: tuple[LaunchRow, ...]
) -> Package:
    table = tables(program)
    sources = {s.name: s.source for s in program.symbols}
    return Package(
        name=program.name,
        kernel_objects=objects.kernels,
        kernel_symbol=llvm.KERNEL,
        entry_object=objects.entry,
        entry_symbol=llvm.ENTRY,
        support_object=objects.support,
        inputs=tuple(_port(program, table, name, name) for name in program.inputs),
        outputs=tuple(
            _port(program, table, name, label)
            for name, label in zip(program.outputs, program.output_names)
        ),
        state=program.state,
        symbols=tuple(
            SizeSymbol(s.name, s.low, s.high, s.divisor, s.source) for s in program.symbols
        ),
        slot_count=len(table.slots),
        dynamic_count=len(table.dynamics),
        arenas=tuple(
            ArenaSpec(
                a.name,
                a.size_bytes,
                all(sources[n] == "input" for n in arith.free_vars(a.size_bytes)),
            )
            for a in program.arenas
        ),
        constants=_blob(program, store),
        scratch_bytes=_scratch(program, table),
        launches=tuple(_launch(program, s) for s in table.launches),
        max_threads=_useful_threads(program, table),
        work_ns=work_ns(rows),
        doubtful=_doubtful(program),
        report=rows,
    )


def _doubtful(program: ir.Program) -> tuple[tuple[str, arith.Expr], ...]:
    """Sizes that small inputs may make negative (a window larger than what it slides over), of what
    every run makes: a branch may be there for just those inputs."""
    env = {s.name: Interval(s.low, s.high) for s in program.symbols}
    given = {s.name for s in program.symbols if s.source == "input"}
    found: dict[arith.Expr, str] = {}
    stmts = program.body.stmts if isinstance(program.body, ir.Seq) else (program.body,)
    always = {name for s in stmts if isinstance(s, ir.Launch) for name in s.args}
    for buffer in (b for b in program.buffers if b.name in always):
        for dim in buffer.shape:
            if arith.free_vars(dim) <= given and not prove("ge", dim, 0, env):
                found.setdefault(dim, buffer.name)
    return tuple((name, dim) for dim, name in found.items())


def _port(program: ir.Program, table: Tables, name: str, label: str) -> Port:
    buffer = program.buffer_map[name]
    if name in table.slots:
        place = Place("slot", table.slots[name])
    elif name in table.dynamics:
        place = Place("dynamic", table.dynamics[name])
    else:
        assert buffer.place is not None, f"output {name} has no place"
        place = Place("arena", table.arenas[buffer.place.arena], buffer.place.offset)
    return Port(label, buffer.dtype.name, buffer.shape, place)


def _blob(program: ir.Program, store: ConstantStore) -> np.ndarray:
    """All constants in one aligned block, each where the plan put it."""
    size = ALIGNMENT
    places: dict[ConstRef, list[int]] = {}
    for buffer in program.buffers:
        if buffer.constant is not None:
            assert buffer.place is not None
            start = arith.evaluate(buffer.place.offset, {})
            places.setdefault(buffer.constant, []).append(start)
            size = max(size, start + arith.evaluate(buffer.size_bytes, {}))
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    blob = raw[-raw.ctypes.data % ALIGNMENT :][:size]
    for constant, starts in places.items():
        store.move(constant, blob, starts)
    blob.flags.writeable = False
    return blob


def _scratch(program: ir.Program, table: Tables) -> arith.Expr:
    """The most any launch needs of a thread's scratch."""
    total: arith.Expr = arith.Const(0)
    limit = knobs.current().stack_limit_bytes
    for s in table.launches:
        if isinstance(s, ir.Launch):
            kernel = program.kernel_map[s.kernel]
            sizes = dict(zip((size.name for size in kernel.sizes), s.sizes))
            need = scratch_layout(kernel, limit).size_bytes
            total = arith.maximum(total, arith.substitute(need, sizes))
    return total


def _launch(program: ir.Program, s: ir.Launch | ir.Bind) -> LaunchInfo:
    if isinstance(s, ir.Bind):
        return LaunchInfo(f"size {s.symbol}", s.origin, (), is_kernel=False)
    return LaunchInfo(s.kernel, s.origin, reasons(program.kernel_map[s.kernel]))


def _useful_threads(program: ir.Program, table: Tables) -> int | None:
    """A program whose every launch is one piece of work gains nothing from a second thread."""
    extents = [arith.as_int(s.extent) for s in table.launches if isinstance(s, ir.Launch)]
    known = [n for n in extents if n is not None]
    return max(known, default=1) if len(known) == len(extents) else None


BACKEND = CpuBackend()

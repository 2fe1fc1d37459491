"""The CPU back end: LLVM objects for the host or a named CPU target.

`STAGES` is its pipeline from the optimised graph on; `build` turns a planned program into the
runtime's package. Loaded through backends/registry.py when a target needs it: it imports llvmlite.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ingot import dtypes
from ingot import target as targets
from ingot.arith import expr as arith
from ingot.arith.bounds import Interval, prove
from ingot.backends import shared
from ingot.backends.base import Stage
from ingot.backends.chunks import chunk_launches
from ingot.backends.report import report, summarize_kernels, work_ns
from ingot.codegen import llvm, llvm_object, llvm_probe
from ingot.cost import contraction as cost
from ingot.graph.ir import ConstRef
from ingot.graph.store import ConstantStore
from ingot.legalize.program import legalize_program
from ingot.loops.frame import reasons, scratch_layout
from ingot.loops.ir import Kernel
from ingot.machine import of_processor
from ingot.passes.choose_layouts import choose_layouts
from ingot.passes.scale_weights import scale_weights
from ingot.passes.separate_pads import separate_pads
from ingot.passes.use_winograd import use_winograd
from ingot.program import ir
from ingot.program.tables import Tables, tables
from ingot.runtime.package import (
    ArenaSpec,
    LaunchInfo,
    Package,
    Port,
    Probe,
    SizeSymbol,
    Storage,
)
from ingot.runtime.pool import usable_cores
from ingot.runtime.report import LaunchRow, MachineModel
from ingot.schedule.program import schedule_program
from ingot.schedule.rules import CPU_RULES
from ingot.support import knobs
from ingot.support.abi import ALIGNMENT
from ingot.support.identity import cpu_caches, processor
from ingot.support.limits import Limits


class CpuBackend:
    name, device, forms = "cpu", "cpu", ("llvm", "asm")

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

    def stages(self, target: targets.Target) -> tuple[Stage, ...]:
        return STAGES

    def source(self, kernel: Kernel, form: str, target: targets.Target) -> str:
        is_assembly = form == "asm"
        return llvm.kernel_assembly(kernel, target) if is_assembly else llvm.kernel_text(kernel)


def build(
    program: ir.Program,
    store: ConstantStore,
    target: targets.Target,
    jobs: int | None,
    profile: bool = False,
    limits: Limits | None = None,
) -> Package:
    """A planned program → package; `profile` compiles cycle counters in."""
    limits = limits or Limits()
    summaries = summarize_kernels(program)
    program = chunk_launches(program, summaries)
    objects = llvm.compile_program(program, target, jobs, profile, limits)
    probe = None
    if objects.probe is not None:
        probe = Probe(objects.probe, llvm_probe.flops_per_iteration(target), target.caches)
    made = package(program, store, objects, report(program, summaries))
    return replace(
        made,
        probe=probe,
        features=target.features,
        notes=tuple(limits.notes),
        machine_model=machine_model(target),
    )


def machine_model(target: targets.Target) -> MachineModel:
    """The roofline model of one core of the target, from cost/contraction.py."""
    found = cost.machine_model(
        target.lanes(dtypes.f32), any(map(target.has, targets.FMA)), target.caches
    )
    return MachineModel(found.flops_per_ns, found.lanes, found.levels)


def host() -> targets.HostFeatures:
    triple, _, flags = llvm_object.host()
    features = tuple(sorted(f[1:] for f in flags.split(",") if f.startswith("+")))
    # features are listed one by one: the base CPU must not imply one that the hypervisor hides
    cpu = "x86-64" if triple.startswith("x86_64") else "generic"
    machine = of_processor(processor())
    return targets.HostFeatures(triple, cpu, features, usable_cores(), cpu_caches(), machine)


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
        maybe_negative_sizes=_maybe_negative_sizes(program),
        report=rows,
    )


def _maybe_negative_sizes(program: ir.Program) -> tuple[tuple[str, arith.Expr], ...]:
    """Sizes that small inputs may make negative (a convolution window larger than its input). Only
    of buffers that every run uses: a branch may exist for just those inputs."""
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
        storage = Storage("slot", table.slots[name])
    elif name in table.dynamics:
        storage = Storage("dynamic", table.dynamics[name])
    else:
        assert buffer.allocation is not None, f"output {name} has no allocation"
        storage = Storage("arena", table.arenas[buffer.allocation.arena], buffer.allocation.offset)
    return Port(label, buffer.dtype.name, buffer.shape, storage)


def _blob(program: ir.Program, store: ConstantStore) -> np.ndarray:
    """All constants in one aligned block, at their planned offsets."""
    size = ALIGNMENT
    offsets: dict[ConstRef, list[int]] = {}
    for buffer in program.buffers:
        if buffer.constant is not None:
            assert buffer.allocation is not None
            start = arith.evaluate(buffer.allocation.offset, {})
            offsets.setdefault(buffer.constant, []).append(start)
            size = max(size, start + arith.evaluate(buffer.size_bytes, {}))
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    blob = raw[-raw.ctypes.data % ALIGNMENT :][:size]
    for constant, starts in offsets.items():
        store.move(constant, blob, starts)
    blob.flags.writeable = False
    return blob


def _scratch(program: ir.Program, table: Tables) -> arith.Expr:
    """The most scratch bytes that any launch needs for a thread."""
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
    """The largest parallel extent, beyond which threads have no work; None if it is dynamic."""
    extents = [arith.as_int(s.extent) for s in table.launches if isinstance(s, ir.Launch)]
    known = [n for n in extents if n is not None]
    return max(known, default=1) if len(known) == len(extents) else None


STAGES = (
    Stage("use_winograd", lambda g, s: use_winograd(g, s.store, s.target), "graph", "graph",
          "3 x 3 convolutions by Winograd F(2x2, 3x3), where the cost model predicts a gain"),
    Stage("choose_layouts", lambda g, s: choose_layouts(g, s.store, s.target), "graph", "graph",
          "channels-last maps around convolutions; pack constant GEMM operands into panels"),
    Stage("scale_weights", lambda g, s: scale_weights(g, s.store), "graph", "graph",
          "scale a convolution's weights per channel and not its input, where they are fewer"),
    Stage("separate_pads", lambda g, s: separate_pads(g, s.store, s.target), "graph", "graph",
          "make zero padding a node, where the producer can write into the padded buffer"),
    shared.FUSE,
    shared.LOWER,
    shared.DEDUPE_KERNELS,
    Stage("schedule", lambda p, s: schedule_program(p, s.target, CPU_RULES, s.limits),
          "program", "program",
          "tile, vectorise and parallelise loops, by the rule of the kernel's family"),
    shared.SPLIT_KERNELS,
    Stage("legalize", lambda p, s: legalize_program(p, s.target), "program", "program",
          "expand annotations: flat buffers, explicit vectors, math functions as polynomials"),
    shared.DEDUPE_LEGAL_KERNELS,
    shared.PLAN_MEMORY,
    shared.BARRIERS,
    Stage("codegen",
          lambda p, s: build(p, s.store, s.target, s.jobs, s.profile, s.limits),
          "program", "package",
          "emit LLVM IR, compile objects, build the tables that the runtime reads"),
)  # fmt: skip

BACKEND = CpuBackend()

"""The CPU back end: LLVM objects for the host or a named CPU target.

`STAGES` is its pipeline from the optimised graph on; `build` turns a planned program into the
runtime's package. Loaded through backends/registry.py when a target needs it: it imports llvmlite.
"""

from __future__ import annotations

from dataclasses import replace

from ingot import dtypes
from ingot import target as targets
from ingot.backends import registry, shared
from ingot.backends.base import Session, Stage
from ingot.backends.map_kernels import map_kernels, processes_of, start_workers
from ingot.backends.packaging import package
from ingot.backends.plan_contractions import plan_contractions, plan_kernels
from ingot.backends.report import report, summarize_kernels
from ingot.codegen import llvm, llvm_object
from ingot.cost import contraction as cost
from ingot.graph.store import ConstantStore
from ingot.legalize.program import legalize_program
from ingot.loops.ir import Kernel
from ingot.machine import of_processor
from ingot.passes.byte_windows import byte_windows
from ingot.passes.choose_layouts import choose_layouts
from ingot.passes.fit_dot_operands import fit_dot_operands
from ingot.passes.lookup_tables import lookup_tables
from ingot.passes.narrow_weights import narrow_weights
from ingot.passes.pack_weights import pack_weights
from ingot.passes.scale_weights import scale_weights
from ingot.passes.separate_pads import separate_pads
from ingot.passes.split_batch import split_batch
from ingot.passes.use_winograd import use_winograd
from ingot.passes.widen_weights import widen_weights
from ingot.program import ir
from ingot.program.tables import tables
from ingot.runtime.cpu import measured
from ingot.runtime.cpu.module import CpuModule, Probe
from ingot.runtime.cpu.native.probe import flops_per_iteration
from ingot.runtime.cpu.pool import usable_cores
from ingot.runtime.package import Module, Package
from ingot.runtime.report import MachineModel
from ingot.schedule.program import schedule_program
from ingot.schedule.table import CPU_RULES
from ingot.support.identity import cpu_caches, processor
from ingot.support.limits import Limits


class CpuBackend:
    name, device, forms = "cpu", "cpu", ("llvm", "asm")

    def target(self, text: str) -> targets.Target:
        """The target called `text`; "cpu" is this machine."""
        return targets.parse(text, host(), registry.names)

    def why_not_here(self, target: targets.Target) -> str:
        """Why code for `target` cannot run on this machine; empty if it can."""
        triple, _, flags = llvm_object.host()
        if target.architecture != triple.partition("-")[0]:
            return f"it is {target.architecture} code, this machine is {triple.partition('-')[0]}"
        absent = {flag[1:] for flag in flags.split(",") if flag.startswith("-")}
        missing = [feature for feature in target.features if feature in absent]
        return f"this machine lacks {', '.join(missing)}" if missing else ""

    def begin(self, session: Session) -> None:
        start_workers(session)

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
    objects = llvm.compile_program(program, target, jobs, profile, limits)
    modules = (_module(program, objects, target),)
    made = package(program, store, modules, report(program, summaries), target.machine)
    return replace(made, notes=tuple(limits.notes), machine_model=machine_model(target))


def _module(program: ir.Program, objects: llvm.Objects, target: targets.Target) -> Module:
    probe = None
    if objects.probe is not None:
        probe = Probe(objects.probe, flops_per_iteration(target), target.caches)
    table = tables(program)
    return CpuModule(
        objects.kernels,
        objects.entry,
        objects.support,
        target.architecture,
        target.features,
        len(table.slots),
        len(table.dynamics),
        probe,
    ).pack()


def machine_model(target: targets.Target) -> MachineModel:
    """The roofline model of one core of the target, from cost/contraction.py."""
    found = cost.machine_model(
        target.lanes(dtypes.f32), any(map(target.has, targets.FMA)), target.caches, target.machine
    )
    return MachineModel(found.flops_per_ns, found.lanes, found.levels)


def host() -> targets.HostFeatures:
    triple, _, flags = llvm_object.host()
    features = tuple(sorted(f[1:] for f in flags.split(",") if f.startswith("+")))
    # features are listed one by one: the base CPU must not imply one that the hypervisor hides
    cpu = "x86-64" if triple.startswith("x86_64") else "generic"
    machine = measured.machine(of_processor(processor()))
    return targets.HostFeatures(triple, cpu, features, usable_cores(), cpu_caches(), machine)


def _schedule(program: ir.Program, s: Session) -> ir.Program:
    processes = processes_of(s)
    batch = llvm.BATCH * processes if processes > 1 else 1
    apply = map_kernels(s, "scheduling")
    return schedule_program(program, s.target, CPU_RULES, s.limits, apply, batch)


def _legalize(program: ir.Program, s: Session) -> ir.Program:
    return legalize_program(program, s.target, map_kernels=map_kernels(s, "legalization"))


STAGES = (
    Stage("lookup_tables", lambda g, s: lookup_tables(g, s.store, s.target), "graph", "graph",
          "functions between quantised values become tables of 256 results"),
    Stage("split_batch", lambda g, s: split_batch(g, s.store, s.target), "graph", "graph",
          "a loop over micro-batches, where the activations of a whole batch exceed the cache"),
    Stage("pack_weights", lambda g, s: pack_weights(g, s.store, s.target), "graph", "graph",
          "repack weights of a few bits into words, in panels of columns"),
    Stage("widen_weights", lambda g, s: widen_weights(g, s.store, s.target), "graph", "graph",
          "contractions of f16 and bf16 in f32; weights are widened when compiling or when read"),
    Stage("narrow_weights", lambda g, s: narrow_weights(g, s.store, s.target), "graph", "graph",
          "store f32 weights in 16 bits, where that is exact and reading them takes the time"),
    Stage("byte_windows", lambda g, s: byte_windows(g, s.store, s.target), "graph", "graph",
          "depthwise convolutions of bytes by dot products over columns, or exactly in f32"),
    Stage("use_winograd", lambda g, s: use_winograd(g, s.store, s.target), "graph", "graph",
          "3 x 3 convolutions by Winograd F(2x2, 3x3), where the cost model predicts a gain"),
    Stage("fit_dot_operands", lambda g, s: fit_dot_operands(g, s.store, s.target),
          "graph", "graph",
          "8-bit operands of the types and sizes that the target's dot products take, exactly"),
    shared.FOLD_OUTPUT_SCALES,
    Stage("choose_layouts", lambda g, s: choose_layouts(g, s.store, s.target), "graph", "graph",
          "channels-last maps around convolutions; pack constant GEMM operands into panels"),
    Stage("scale_weights", lambda g, s: scale_weights(g, s.store), "graph", "graph",
          "scale a convolution's weights per channel and not its input, where they are fewer"),
    Stage("separate_pads", lambda g, s: separate_pads(g, s.store, s.target), "graph", "graph",
          "make zero padding a node, where the producer can write into the padded buffer"),
    shared.FUSE,
    shared.ALIAS_BUFFERS,
    Stage("plan_contractions", lambda g, s: plan_contractions(g, s.target, CPU_RULES),
          "graph", "graph",
          "decide tile, packing and cache blocks of each contraction: a plan on its fused node"),
    shared.LOWER,
    shared.MERGE_AXES,
    shared.DEDUPE_KERNELS,
    Stage("plan_kernels", lambda p, s: plan_kernels(p, s.target, CPU_RULES), "program", "program",
          "the same for kernels that no fused node stands for"),
    shared.SPLIT_VARIANTS,
    Stage("schedule", _schedule, "program", "program",
          "tile, vectorise and parallelise loops, by the rule of the kernel's family"),
    shared.SPLIT_KERNELS,
    Stage("legalize", _legalize, "program", "program",
          "expand annotations: flat buffers, explicit vectors, math functions as polynomials"),
    shared.DEDUPE_LEGAL_KERNELS,
    shared.PLAN_MEMORY,
    shared.BARRIERS,
    shared.CHUNK_LAUNCHES,
    Stage("codegen",
          lambda p, s: build(p, s.store, s.target, s.jobs, s.profile, s.limits),
          "program", "package",
          "emit LLVM IR, compile objects, build the tables that the runtime reads"),
)  # fmt: skip

BACKEND = CpuBackend()

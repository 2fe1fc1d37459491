"""Legalize over a whole program: split kernels into nests, legalize each, dedupe equal kernels.

In: a program whose kernels are scheduled. Out: one whose kernels a printer can print. Called by
pipeline.STAGES["split_kernels" | "legalize" | "dedupe_kernels"].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from ingot.arith import expr as arith
from ingot.legalize import legalize_kernel
from ingot.legalize.dynamic_scratch import data_dependent_sizes, hoist_allocs
from ingot.legalize.passes import PASSES, Pass
from ingot.legalize.split_kernels import split_kernel
from ingot.loops import ir as loops
from ingot.loops import visit
from ingot.loops.canonical import digest
from ingot.program import ir
from ingot.program.tables import map_launches
from ingot.support.mapping import Map, map_here
from ingot.target import Target


def split_kernels(program: ir.Program) -> ir.Program:
    """launch k  →  launch k_0; launch k_1; …   one for each top-level nest of k"""
    split = {name: split_kernel(kernel) for name, kernel in program.kernels}
    buffers = dict(program.buffer_map)
    kernels: dict[str, loops.Kernel] = {}

    def expand(s: ir.Launch) -> ir.Stmt:
        whole, nests = program.kernel_map[s.kernel], split[s.kernel]
        args_by_name = dict(zip((p.name for p in whole.params), s.args))
        sizes = dict(zip((size.name for size in whole.sizes), s.sizes))
        for temp in nests.temporaries:
            args_by_name[temp.name] = _temporary(f"{s.kernel}.{temp.name}", temp, sizes, buffers)
        launches = []
        for nest in nests.kernels:
            kernels[nest.name] = nest
            args = tuple(args_by_name[p.name] for p in nest.params)
            nest_sizes = tuple(sizes[size.name] for size in nest.sizes)
            launches.append(ir.Launch(nest.name, args, nest_sizes, origin=s.origin))
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


def legalize_program(
    program: ir.Program,
    target: Target,
    passes: Sequence[Pass] = PASSES,
    map_kernels: Map = map_here,
) -> ir.Program:
    """Legalize every kernel, and set the parallel extent of each launch."""
    sizes_of = data_dependent_sizes(program)
    items = [(name, (kernel, sizes_of[name])) for name, kernel in program.kernels]
    legal = map_kernels(partial(_legalized, target=target, passes=tuple(passes)), items)
    kernels = dict(zip((name for name, _ in items), legal))
    buffers = dict(program.buffer_map)

    def with_extent(s: ir.Launch) -> ir.Stmt:
        kernel = kernels[s.kernel]
        sizes = dict(zip((size.name for size in kernel.sizes), s.sizes))
        hoisted = kernel.params[: len(kernel.params) - len(s.args)]
        temporaries = [_temporary(f"{s.kernel}.{p.name}", p, sizes, buffers) for p in hoisted]
        extent = arith.substitute(parallel_extent(kernel), sizes)
        return ir.replace(s, args=(*temporaries, *s.args), extent=extent)

    body = map_launches(program.body, with_extent)
    return ir.replace(
        program, body=body, kernels=tuple(kernels.items()), buffers=tuple(buffers.values())
    )


def _legalized(
    item: tuple[loops.Kernel, set[str]], target: Target, passes: Sequence[Pass]
) -> loops.Kernel:
    kernel, data_dependent = item
    return hoist_allocs(legalize_kernel(kernel, target, passes=passes), data_dependent)


def parallel_extent(kernel: loops.Kernel) -> arith.Expr:
    """Iterations of the outermost parallel loop; 1 for a kernel that has none."""
    body = kernel.body
    while isinstance(body, loops.Alloc | loops.Let):
        body = body.body
    if isinstance(body, loops.For) and body.kind is loops.LoopKind.PARALLEL:
        return body.stop
    return arith.Const(1)


def dedupe_kernels(program: ir.Program) -> ir.Program:
    """Merge kernels that are equal up to names: before scheduling, so that each is scheduled once,
    and again after legalization."""
    outlines = {name: _outline(kernel) for name, kernel in program.kernels}
    count, first = Counter(outlines.values()), dict[tuple, str]()
    names = {name: name for name in outlines}
    for name, kernel in program.kernels:
        if count[outlines[name]] > 1:  # a digest takes as long as a pass of legalize
            in_float = [r.why for r in kernel.remarks if r.about == loops.IN_FLOAT]
            key = outlines[name], digest(kernel), _to_schedule(kernel), tuple(in_float)
            names[name] = first.setdefault(key, name)
    kept = tuple((name, kernel) for name, kernel in program.kernels if names[name] == name)
    body = map_launches(program.body, lambda s: ir.replace(s, kernel=names[s.kernel]))
    return ir.replace(program, body=body, kernels=kept)


def _outline(kernel: loops.Kernel) -> tuple:
    """What equal kernels have in common and is quickly found: family, types, statements."""
    types = [(p.dtype, tuple(map(arith.as_int, p.shape))) for p in kernel.params]
    count = sum(1 for _ in visit.walk_stmts(kernel.body))
    return kernel.family, tuple(types), len(kernel.sizes), count


def _to_schedule(kernel: loops.Kernel) -> tuple[loops.ContractionPlan, ...]:
    """The plans, if they are still to be applied: a legal kernel has no blocks."""
    has_blocks = any(isinstance(s, loops.Block) for s in visit.walk_stmts(kernel.body))
    return tuple(plan for _, plan in kernel.plans) if has_blocks else ()

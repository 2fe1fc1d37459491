"""A planned program and compiled modules → the runtime's package. Called by back ends.

In: a planned Program, its constants, the modules that a back end made, and report rows. Out:
Package. Tables, ports, sizes and constants are made alike for every device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ingot.arith import expr as arith
from ingot.arith.bounds import Interval, prove
from ingot.backends.report import over_iterations, work_ns
from ingot.graph.ir import ConstRef
from ingot.graph.store import ConstantStore
from ingot.loops.frame import reasons
from ingot.machine import GENERIC, Machine
from ingot.program import ir
from ingot.program.bounds import checked_per_call
from ingot.program.tables import Tables, scratch_bytes, tables
from ingot.runtime.package import (
    ArenaSpec,
    Bundle,
    Growth,
    HostStep,
    LaunchInfo,
    Module,
    Package,
    Port,
    SizeSymbol,
    Storage,
)
from ingot.runtime.report import LaunchRow
from ingot.support import options
from ingot.support.abi import ALIGNMENT


def package(
    program: ir.Program,
    store: ConstantStore,
    modules: tuple[Module, ...],
    rows: tuple[LaunchRow, ...],
    machine: Machine = GENERIC,
) -> Package:
    """The package, with ports in host memory; `machine` is that of the rows' kernels."""
    table = tables(program)
    sources = {s.name: s.source for s in program.symbols}
    return Package(
        name=program.name,
        modules=modules,
        inputs=tuple(_port(program, table, name, name) for name in program.inputs),
        outputs=tuple(
            _port(program, table, name, label)
            for name, label in zip(program.outputs, program.output_names)
        ),
        state=program.state,
        symbols=tuple(
            SizeSymbol(s.name, s.low, s.high, s.divisor, s.source) for s in program.symbols
        ),
        arenas=tuple(
            ArenaSpec(
                a.name,
                a.size_bytes,
                all(sources.get(n) != "node" for n in arith.free_vars(a.size_bytes)),
            )
            for a in program.arenas
        ),
        constants=_blob(program, store),
        scratch_bytes=scratch_bytes(program, options.current().stack_limit_bytes),
        launches=tuple(_launch(program, s) for s in table.launches),
        max_threads=_useful_threads(program, table),
        work_ns=work_ns(program, rows, machine),
        maybe_negative_sizes=_maybe_negative_sizes(program),
        memory_bounds=tuple((b.buffer, b.expr) for b in checked_per_call(program)),
        offsets=program.offsets,
        report=over_iterations(program, rows),
        growth=_growth(program.growth),
        map_inputs=tuple(sorted(n for n in store.map_inputs if f"{n}.keys" in program.inputs)),
        map_outputs=tuple(
            (n, v) for n, v in store.map_outputs.items() if n in program.output_names
        ),
        host_steps=tuple(_host_step(program, s) for s in table.host_steps),
        strings=tuple(store.strings) if any(b.dtype.is_string for b in program.buffers) else (),
        bundles=tuple(Bundle(b.name, b.kinds, b.values) for b in program.bundles),
        signature=store.signature,
        constant_places=_places(program),
        initial=tuple(store.initial.items()),
        borrowed=borrowed(store),
    )


def borrowed(store: ConstantStore) -> tuple[tuple[str, str, bool], ...]:
    return tuple((port, *about) for port, about in store.borrowed.items())


def _growth(growth: ir.Growth | None) -> Growth | None:
    return None if growth is None else Growth(growth.rows, growth.added, growth.axes)


def _maybe_negative_sizes(program: ir.Program) -> tuple[tuple[str, arith.Expr], ...]:
    """Sizes that small inputs may make negative (a convolution window larger than its input). Only
    of buffers that every run uses: a branch may exist for just those inputs."""
    env = {s.name: Interval(s.low, s.high) for s in program.symbols}
    given = {s.name for s in program.symbols if s.source != "node"}
    found: dict[arith.Expr, str] = {}
    always = {name for s in _unconditional(program.body) for name in s.args}
    for buffer in (b for b in program.buffers if b.name in always):
        for dim in buffer.shape:
            if arith.free_vars(dim) <= given and not prove("ge", dim, 0, env):
                found.setdefault(dim, buffer.name)
    return tuple((name, dim) for dim, name in found.items())


def _unconditional(s: ir.Stmt) -> Iterator[ir.Launch]:
    """The launches outside of branches and loops; of variants, the general one."""
    todo = [s]
    while todo:
        match todo.pop():
            case ir.Launch() as launch:
                yield launch
            case ir.Seq(stmts=stmts):
                todo.extend(stmts)
            case ir.IfSize(orelse=orelse):
                todo.append(orelse)


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


def _places(program: ir.Program) -> tuple[tuple[str, int], ...]:
    """The planned offset of each constant buffer."""
    found = [(b.name, b.allocation) for b in program.buffers if b.constant is not None]
    return tuple((name, arith.evaluate(at.offset, {})) for name, at in found if at is not None)


def _blob(program: ir.Program, store: ConstantStore) -> np.ndarray:
    """All constants in one aligned block, at their planned offsets."""
    return constant_blob(program, dict(_places(program)), store)


def constant_blob(
    program: ir.Program, places: Mapping[str, int], store: ConstantStore
) -> np.ndarray:
    """All constants in one aligned block, each buffer's at its place."""
    size = ALIGNMENT
    offsets: dict[ConstRef, list[int]] = {}
    for buffer in program.buffers:
        if buffer.constant is not None:
            start = places[buffer.name]
            offsets.setdefault(buffer.constant, []).append(start)
            size = max(size, start + arith.evaluate(buffer.size_bytes, {}))
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    blob = raw[-raw.ctypes.data % ALIGNMENT :][:size]
    for constant, starts in offsets.items():
        store.move(constant, blob, starts)
    blob.flags.writeable = False
    return blob


def _host_step(program: ir.Program, s: ir.HostStep) -> HostStep:
    types = {b.name: (b.dtype.name, len(b.shape)) for b in program.buffers}
    inputs = tuple(None if name is None else types[name] for name in s.args)
    outputs = tuple(types[name] for name in s.results)
    return HostStep(s.name, s.attrs, inputs, outputs, s.keeps, s.takes, s.sizes)


def _launch(program: ir.Program, s: ir.Launch | ir.HostStep | ir.Bind) -> LaunchInfo:
    if isinstance(s, ir.Bind):
        return LaunchInfo(f"size {s.symbol}", s.origin, (), is_kernel=False)
    if isinstance(s, ir.HostStep):
        return LaunchInfo(s.name, s.origin, ())
    return LaunchInfo(s.kernel, s.origin, reasons(program.kernel_map[s.kernel]))


def _useful_threads(program: ir.Program, table: Tables) -> int | None:
    """The largest parallel extent, beyond which threads have no work; None if it is dynamic."""
    extents = [arith.as_int(s.extent) for s in table.launches if isinstance(s, ir.Launch)]
    known = [n for n in extents if n is not None]
    return max(known, default=1) if len(known) == len(extents) else None

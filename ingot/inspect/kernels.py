"""The first kernel whose compiled code is wrong. In: a program that its interpreter runs right.
Out: a program of one launch with its inputs and outputs, which goes wrong on its own.

Each launch is compiled alone and runs on what the interpreter gives it. Called by stages.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ingot import pipeline
from ingot.arith import expr as arith
from ingot.arith.solve import solve
from ingot.graph.store import ConstantStore
from ingot.inspect.case import Setting, run_package
from ingot.inspect.difference import Expected
from ingot.inspect.launches import written_args
from ingot.loops.signature import signature
from ingot.program import interp as program_interp
from ingot.program import ir
from ingot.support.errors import IngotError


@dataclass(frozen=True)
class OneLaunch:
    launch: ir.Launch
    program: ir.Program
    expected: Expected


def first_wrong_kernel(
    program: ir.Program, store: ConstantStore, expected: Expected, setting: Setting
) -> OneLaunch | None:
    """None if each launch is right on its own."""
    for one in _launches(program, store, expected):
        session = setting.session(ConstantStore())
        with suppress(IngotError):  # what cannot be cut out is not looked at
            package = pipeline.run_stages(one.program, session, session.stages[-1].name)
            if run_package(one.expected, package, setting.threads).is_wrong:
                return one
    return None


def _launches(program: ir.Program, store: ConstantStore, expected: Expected) -> Iterator[OneLaunch]:
    """Every launch with the arrays that it had in a run, except those that update in place."""
    runs: list[tuple[ir.Launch, dict[str, np.ndarray]]] = []

    def observe(launch: ir.Launch, arrays: Mapping[str, np.ndarray]) -> None:
        runs.append((launch, {name: array.copy() for name, array in arrays.items()}))

    program_interp.run(program, store, expected.feeds, observe=observe)
    done: set[int] = set()  # of a loop, the first iteration
    for launch, arrays in runs:
        kernel = program.kernel_map[launch.kernel]
        is_updated = signature(kernel).new_outputs != signature(kernel).outputs
        fixed = _for_sizes(program, launch, arrays)
        if id(launch) not in done and not is_updated and fixed is not None:
            done.add(id(launch))
            yield _alone(program, fixed, arrays)


def _for_sizes(
    program: ir.Program, launch: ir.Launch, arrays: Mapping[str, np.ndarray]
) -> ir.Launch | None:
    """The launch at the sizes of its arrays, if these tell all that it needs."""
    pairs = (p for n, a in arrays.items() for p in zip(program.buffer_map[n].shape, a.shape))
    sizes = solve(pairs)
    made = ir.replace(
        launch,
        sizes=tuple(arith.substitute(size, sizes) for size in launch.sizes),
        extent=arith.substitute(launch.extent, sizes),
        chunks=arith.substitute(launch.chunks, sizes),
    )
    used = (*made.sizes, made.extent, made.chunks)
    return None if any(arith.as_int(size) is None for size in used) else made


def _alone(program: ir.Program, launch: ir.Launch, arrays: Mapping[str, np.ndarray]) -> OneLaunch:
    written = written_args(program, launch)
    buffers = tuple(
        ir.Buffer(
            name,
            program.buffer_map[name].dtype,
            tuple(map(arith.Const, array.shape)),
            ir.Storage.OUTPUT if name in written else ir.Storage.INPUT,
        )
        for name, array in arrays.items()
    )
    inputs = tuple(name for name in arrays if name not in written)
    outputs = tuple(name for name in arrays if name in written)
    made = ir.Program(
        launch.kernel, (), buffers, ((launch.kernel, program.kernel_map[launch.kernel]),), launch,
        inputs, outputs, outputs, is_planned=True,
    )  # fmt: skip
    feeds, results = {n: arrays[n] for n in inputs}, [arrays[n] for n in outputs]
    return OneLaunch(launch, made, Expected(feeds, outputs, results, results, lambda: results))

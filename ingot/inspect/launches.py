"""The first launch of a program that writes something wrong. In: a case, the IR before a stage and
the program after it. Out: a launch, whose origin names the user's node. Called by stages.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from ingot.graph import interp
from ingot.graph.ir import Graph
from ingot.graph.store import ConstantStore
from ingot.inspect.case import Case
from ingot.inspect.difference import compare
from ingot.loops import visit
from ingot.program import interp as program_interp
from ingot.program import ir
from ingot.program.tables import walk
from ingot.support.errors import IngotError

Writes = dict[str, list[np.ndarray]]  # buffer → its contents after each launch that wrote it


def first_wrong_launch(
    case: Case, before: Any, after: ir.Program, store: ConstantStore
) -> ir.Launch | None:
    """The first launch of `after` whose result is not what `before` computes."""
    expected = _values(case, before, store) if isinstance(before, Graph) else {}
    if isinstance(before, ir.Program):
        expected = _writes(case, before, store)[0]
    _, order = _writes(case, after, store)
    count: dict[str, int] = {}
    for launch, written in order:
        for name, array in written.items():
            wanted = expected.get(name, [])
            at = count[name] = count.get(name, -1) + 1
            if at < len(wanted) and _differs(name, array, wanted[at]):
                return launch
    return order[-1][0] if order else None


def _values(case: Case, graph: Graph, store: ConstantStore) -> Writes:
    """A value has the name of its buffer."""
    found = interp.run_all(graph, store, case.arrays)
    return {name: [array] for name, array in found.items()}


def _writes(
    case: Case, program: ir.Program, store: ConstantStore
) -> tuple[Writes, list[tuple[ir.Launch, Mapping[str, np.ndarray]]]]:
    found: Writes = {}
    order: list[tuple[ir.Launch, Mapping[str, np.ndarray]]] = []

    def observe(launch: ir.Launch, arrays: Mapping[str, np.ndarray]) -> None:
        written = written_args(program, launch)
        copies = {name: array.copy() for name, array in arrays.items() if name in written}
        order.append((launch, copies))
        for name, array in copies.items():
            found.setdefault(name, []).append(array)

    with suppress(IngotError):  # what was written until then is there
        program_interp.run(program, store, case.feeds, observe=observe)
    return found, order


def written_args(program: ir.Program, launch: ir.Launch) -> set[str]:
    kernel = program.kernel_map[launch.kernel]
    written = visit.written(kernel.body)
    return {name for name, p in zip(launch.args, kernel.params) if p.name in written}


def _differs(name: str, array: np.ndarray, wanted: np.ndarray) -> bool:
    if array.size != wanted.size or array.dtype != wanted.dtype:  # another layout
        return False
    flat = wanted.reshape(-1)
    return compare(name, array.reshape(-1), flat, flat).is_wrong


def named_launch(program: ir.Program, text: str) -> ir.Launch | None:
    """The launch that an error names last."""
    launches = [s for s in walk(program.body) if isinstance(s, ir.Launch)]
    named = [(text.rfind(f"launch of {s.kernel} for {s.origin}"), s) for s in launches]
    place, launch = max(named, key=lambda pair: pair[0], default=(-1, None))
    return launch if place >= 0 else None

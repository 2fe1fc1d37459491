"""Open a model to run: from the cache, compiled, or from a plan file.

In: a file and options. Out: an Executable, and values of its dynamic dimensions for random inputs;
the arrays of a call. Called by run.py and profile.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ingot import api
from ingot.arith import expr as arith
from ingot.arith.solve import solve
from ingot.cli.feeds import FeedSpec, make_feeds
from ingot.cli.options import Shapes
from ingot.runtime import plan_file
from ingot.runtime.executable import Executable
from ingot.runtime.package import Port
from ingot.runtime.sizes import refuse_unknown
from ingot.runtime.state import State
from ingot.shapes import named_sizes, with_sizes, without_shapes
from ingot.support.errors import IngotError


def open_model(
    model: Path, target: str, threads: int | None, shapes: Shapes, state: dict[str, str],
    capacity: int | None, jobs: int | None, profile: bool = False, outputs: tuple[str, ...] = (),
) -> tuple[Executable, Shapes]:  # fmt: skip
    """Like ingot.compile, or ingot.load for a plan file."""
    if plan_file.is_plan(str(model)):
        if state or capacity or profile or outputs or target != "cpu":
            what = f"{model} is a plan: --target, --state, --capacity, --output and profile need "
            what += "the model"
            why = "a plan is compiled already"
            hint = "give the model it was compiled from"
            raise IngotError("bad-option", what, why=why, hint=hint)
        exe = api.load(model, threads)
        refuse_unknown(exe.package, without_shapes(shapes))
        return exe, with_sizes(input_ports(exe), shapes)  # for random inputs
    sizes = named_sizes(model, shapes)
    exe = api.compile(model, target, threads, shapes=sizes, outputs=outputs, state=state,
                      capacity=capacity, jobs=jobs, profile=profile)  # fmt: skip
    return exe, sizes


def make_call(
    exe: Executable, sizes: Shapes, spec: FeedSpec
) -> tuple[dict[str, np.ndarray], State | None]:
    """The inputs of one call, and an empty state if the executable keeps one."""
    _refuse_bundles(exe)
    growth = exe.package.growth
    ports = input_ports(exe)
    feeds = make_feeds(ports, exe.package.symbols, sizes, spec, growth)
    if growth is None:
        return feeds, None
    pairs = [(d, n) for p in ports for d, n in zip(p.shape, feeds[p.name].shape)]
    known = {name: arith.evaluate(size, {}) for name, size in solve(pairs).items()}
    kept = [p for p in exe.package.inputs if p.name in dict(exe.package.state)]
    names = {name for port in kept for dim in port.shape for name in arith.free_vars(dim)}
    return feeds, exe.new_state(**{name: known.get(name, 1) for name in names})


def input_ports(exe: Executable) -> list[Port]:
    """The inputs, with sizes as expressions."""
    return [info.port for info in exe.inputs]


def _refuse_bundles(exe: Executable) -> None:
    """Files hold arrays; sequences and optionals are for Python."""
    for info in (*exe.inputs, *exe.outputs):
        port = info.port
        if port.kind != "tensor":
            what = f"the command line runs models of tensors; {port.name!r} is a {port.kind}"
            hint = "run it from Python: exe.run(None, {name: [array, …]})"
            raise IngotError("bad-option", what, hint=hint)

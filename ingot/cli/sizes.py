"""Open sizes from the shapes of inputs: `--shape ids=1x128` says what batch and seq are.

In: a model's inputs and what was given on the command line. Out: sizes by name. Called by every
command that compiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ingot import api
from ingot.arith import expr as arith
from ingot.cli.options import Shape, Shapes
from ingot.graph.ir import Graph
from ingot.runtime.package import Place, Port
from ingot.support import lazy
from ingot.support.errors import IngotError


def named_sizes(model: Path, shapes: Shapes) -> Shapes:
    """What `ingot.compile` takes: shapes of inputs become the sizes they give."""
    of_inputs = {name: shape for name, shape in shapes.items() if isinstance(shape, Shape)}
    if not of_inputs:
        return shapes
    others = {name: size for name, size in shapes.items() if name not in of_inputs}
    return {**solve(ports(read_graph(model)), of_inputs), **others}


def read_graph(model: Path) -> Graph:
    """The model as it comes in."""
    return lazy.load("pipeline").run_stages(model, api.make_session(), stop_after="import")


def ports(graph: Graph) -> list[Port]:
    return [
        Port(value.name, value.dtype.name, value.shape, Place("slot", number))
        for number, value in enumerate(graph.inputs)
    ]


def solve(inputs: Iterable[Port], given: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Sizes from shapes of inputs; one that no size explains is an error that names the input."""
    known = {port.name: port for port in inputs}
    sizes: dict[str, int] = {}
    for name, shape in given.items():
        if name not in known:
            hint = "the inputs are " + ", ".join(map(str, known.values()))
            raise IngotError("bad-option", f"no input is called {name!r}", hint=hint)
        port = known[name]
        if len(shape) != len(port.shape):
            raise _contradiction(port, shape, f"it has {len(port.shape)} dimensions")
        for dim, size in zip(port.shape, shape):
            if isinstance(dim, arith.Var):
                dim = arith.wrap(sizes.setdefault(dim.name, size))
            if arith.as_int(dim) not in (None, size):
                raise _contradiction(port, shape, f"{dim} is not {size}")
    return sizes


def _contradiction(port: Port, shape: tuple[int, ...], why: str) -> IngotError:
    given = "x".join(map(str, shape))
    return IngotError("bad-option", f"{port.name!r} cannot be {given}", where=str(port), why=why)

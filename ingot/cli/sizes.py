"""Dynamic dimensions from the shapes of inputs: `--shape ids=1x128` gives batch=1 and seq=128.

In: a model's inputs and the shapes of the command line. Out: dynamic dimensions by name. Called by
every command that compiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ingot import api, frontends
from ingot.arith import expr as arith
from ingot.arith.solve import solve
from ingot.cli.options import Shape, Shapes
from ingot.graph.ir import Graph, replace
from ingot.runtime.package import Port, Storage
from ingot.support import lazy
from ingot.support.abi import RANDOM_KEY
from ingot.support.errors import IngotError


def named_sizes(model: Path, shapes: Shapes) -> Shapes:
    """The `shapes` argument of `ingot.compile`: shapes of inputs become dynamic dimensions."""
    if not any(isinstance(shape, Shape) for shape in shapes.values()):
        return shapes
    return with_sizes(ports(read_graph(model, shapes)), shapes)


def with_sizes(inputs: Iterable[Port], shapes: Shapes) -> Shapes:
    """The dimensions given by name, ranges included, and those solved from the inputs' shapes."""
    of_inputs = {name: shape for name, shape in shapes.items() if isinstance(shape, Shape)}
    numbers = {name: size for name, size in shapes.items() if isinstance(size, int)}
    return {**without_shapes(shapes), **sizes_of(inputs, of_inputs, numbers)}


def without_shapes(shapes: Shapes) -> Shapes:
    return {name: size for name, size in shapes.items() if not isinstance(size, Shape)}


def read_graph(model: Path, shapes: Shapes) -> Graph:
    """The imported graph, specialised for the dimensions that were given by name; its inputs are
    those of a caller, without the buffers of a PyTorch module."""
    session = api.make_session(shapes=without_shapes(shapes))
    graph = lazy.load("pipeline").run_stages(model, session, stop_after="import")
    held = session.store.initial
    return replace(graph, inputs=tuple(v for v in graph.inputs if v.name not in held))


def ports(graph: Graph) -> list[Port]:
    """The inputs that a caller gives."""
    return [
        Port(value.name, value.dtype.name, value.shape, Storage("slot", number))
        for number, value in enumerate(graph.inputs)
        if value.name != RANDOM_KEY
    ]


def file_sizes(model: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Sizes by the model file's own names, as other runtimes need them; without a name that
    stands for two sizes ("?")."""
    found: dict[str, set[int]] = {}
    for port, names in frontends.find(model).dim_names(model).items():
        for name, size in zip(names, shapes.get(port, ())):
            if name:
                found.setdefault(name, set()).add(size)
    return {name: min(sizes) for name, sizes in found.items() if len(sizes) == 1}


def sizes_of(
    inputs: Iterable[Port], given: Mapping[str, Shape], known: Mapping[str, int]
) -> dict[str, int]:
    """Dynamic dimensions solved from the inputs' shapes; an error if that is not possible."""
    known_ports = {port.name: port for port in inputs}
    unknown = [name for name in given if name not in known_ports]
    if unknown:
        hint = "the inputs are " + ", ".join(map(str, known_ports.values()))
        raise IngotError("bad-option", f"no input is called {unknown[0]!r}", hint=hint)
    pairs = [(known_ports[name], shape) for name, shape in given.items()]
    for port, shape in pairs:
        if len(shape) != len(port.shape):
            raise _contradiction(port, shape, f"it has {len(port.shape)} dimensions")
    solved = solve((pair for port, shape in pairs for pair in zip(port.shape, shape)), known)
    sizes = {name: arith.evaluate(size, {}) for name, size in solved.items()}
    for port, shape in pairs:
        _check(port, shape, sizes)
    return sizes


def _check(port: Port, shape: Shape, sizes: Mapping[str, int]) -> None:
    """Check that every dimension is known, not negative, and equal to the given size."""
    for dim, size in zip(port.shape, shape):
        names = sorted(arith.free_vars(dim))
        missing = [name for name in names if name not in sizes]
        if missing:
            why = f"it does not determine {' and '.join(missing)} in {dim}"
            raise _contradiction(port, shape, why, hint=f"--size {missing[0]}=N")
        found = arith.evaluate(dim, sizes)
        if found != size or any(sizes[name] < 0 for name in names):
            given = ", ".join(f"{name}={sizes[name]}" for name in names)
            why = f"{dim} would be {found} with {given}" if given else f"{dim} is not {size}"
            raise _contradiction(port, shape, why)


def _contradiction(port: Port, shape: Shape, why: str, hint: str = "") -> IngotError:
    what = f"{port.name!r} cannot be {'x'.join(map(str, shape))}"
    return IngotError("bad-option", what, where=str(port), why=why, hint=hint)

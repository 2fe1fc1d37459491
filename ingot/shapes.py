"""`shapes=` and `--shape`: whole shapes of inputs become sizes of dynamic dimensions.

    {"batch": 8, "seq": (1, 512)}       a key that names a dimension takes a size or a range
    {"ids": (1, 128)}                   one that names an input takes a shape: batch=1, seq=128

In: a model or its inputs, and what the caller gave. Out: sizes and ranges by dimension, as the
importers take them. Called by api.py and by every command that compiles.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ingot import frontends
from ingot.arith import expr as arith
from ingot.arith.solve import solve
from ingot.graph.ir import Graph, replace
from ingot.runtime.package import Port, Storage
from ingot.support import lazy
from ingot.support.abi import RANDOM_KEY
from ingot.support.errors import IngotError
from ingot.support.names import Shape, ambiguous_shape, did_you_mean

Sizes = dict[str, int | tuple[int, int]]
Given = Mapping[str, int | Sequence[int]]


def named_sizes(model: Any, shapes: Given) -> Sizes:
    """The sizes that were given, the model's inputs read if one of them may be a whole shape."""
    if all(isinstance(size, int) for size in shapes.values()):
        return _dimensions(shapes, {})
    dims = _dimensions_by_input(model)
    if not any(name in dims or _must_be_whole(size) for name, size in shapes.items()):
        return _dimensions(shapes, {})
    for name in shapes:
        if name in dims and any(name in row for row in dims.values()):
            raise ambiguous_shape(name)
    return with_sizes(ports(read_graph(model, shapes)), shapes)


def _dimensions_by_input(model: Any) -> Mapping[str, Collection[str]]:
    """The names of the inputs, and of their dimensions in the model file."""
    if isinstance(model, Graph):
        return {v.name: {n for d in v.shape for n in arith.free_vars(d)} for v in model.inputs}
    return frontends.find(model).dim_names(model)


def with_sizes(inputs: Iterable[Port], shapes: Given) -> Sizes:
    """The dimensions given by name, ranges included, and those solved from the inputs' shapes."""
    known = {port.name: port for port in inputs}
    sizes = _dimensions({n: x for n, x in shapes.items() if n not in known}, known)
    numbers = {name: size for name, size in sizes.items() if isinstance(size, int)}
    whole = {name: _whole(known[name], x) for name, x in shapes.items() if name in known}
    return {**sizes, **_solved([(known[name], shape) for name, shape in whole.items()], numbers)}


def without_shapes(shapes: Given) -> Sizes:
    """What was given by dimension on the command line."""
    return _dimensions({n: x for n, x in shapes.items() if not isinstance(x, Shape)}, {})


def read_graph(model: Any, shapes: Given) -> Graph:
    """The imported graph, specialised for the dimensions that were given by name; its inputs are
    those of a caller, without the buffers of a PyTorch module."""
    names = _dimensions_by_input(model)
    by_name = {n: x for n, x in shapes.items() if n not in names and not _must_be_whole(x)}
    pipeline = lazy.load("pipeline")
    session = pipeline.open_session("cpu", shapes=_dimensions(by_name, {}))
    graph = pipeline.run_stages(model, session, stop_after="import")
    held = session.store.initial
    return replace(graph, inputs=tuple(v for v in graph.inputs if v.name not in held))


def ports(graph: Graph) -> list[Port]:
    """The inputs that a caller gives."""
    return [
        Port(value.name, value.dtype.name, value.shape, Storage("slot", number))
        for number, value in enumerate(graph.inputs)
        if value.name != RANDOM_KEY
    ]


def _must_be_whole(size: int | Sequence[int]) -> bool:
    return not isinstance(size, int) and (isinstance(size, Shape) or len(size) != 2)


def _dimensions(shapes: Given, inputs: Mapping[str, Port]) -> Sizes:
    """Sizes and ranges by dimension; a whole shape is an error that lists the inputs."""
    found: Sizes = {}
    for name, size in shapes.items():
        if isinstance(size, int):
            found[name] = size
        elif not _must_be_whole(size):
            found[name] = (size[0], size[1])
        else:
            what = f"shapes: {name!r} is {_shown(size)}, and no input is called {name!r}"
            hint = did_you_mean(name, inputs)
            hint += f"the inputs are {', '.join(map(str, inputs.values()))}; " if inputs else ""
            hint += "a dimension takes a number, or a pair (low, high)"
            raise IngotError("bad-option", what, hint=hint)
    return found


def _whole(port: Port, shape: int | Sequence[int]) -> Sequence[int]:
    if isinstance(shape, int):
        what, hint = f"shapes: {port.name!r} is {shape}", f"it is an input: give its shape, {port}"
        raise IngotError("bad-option", what, hint=hint)
    if len(shape) != len(port.shape):
        raise _contradiction(port, shape, f"it has {len(port.shape)} dimensions")
    return shape


def _solved(pairs: Sequence[tuple[Port, Sequence[int]]], known: Mapping[str, int]) -> Sizes:
    """Dynamic dimensions solved from the inputs' shapes; an error if that is not possible."""
    solved = solve((pair for port, shape in pairs for pair in zip(port.shape, shape)), known)
    sizes = {name: arith.evaluate(size, {}) for name, size in solved.items()}
    for port, shape in pairs:
        _check(port, shape, sizes)
    return {**sizes}


def _check(port: Port, shape: Sequence[int], sizes: Mapping[str, int]) -> None:
    """Check that every dimension is known, not negative, and equal to the given size."""
    for dim, size in zip(port.shape, shape):
        names = sorted(arith.free_vars(dim))
        missing = [name for name in names if name not in sizes]
        if missing:
            why = f"it does not determine {' and '.join(missing)} in {dim}"
            raise _contradiction(port, shape, why, hint=f"give {missing[0]} too, by its name")
        found = arith.evaluate(dim, sizes)
        if found != size or any(sizes[name] < 0 for name in names):
            given = ", ".join(f"{name}={sizes[name]}" for name in names)
            why = f"{dim} would be {found} with {given}" if given else f"{dim} is not {size}"
            raise _contradiction(port, shape, why)


def _contradiction(port: Port, shape: Sequence[int], why: str, hint: str = "") -> IngotError:
    what = f"{port.name!r} cannot be {'x'.join(map(str, shape))}"
    return IngotError("bad-option", what, where=str(port), why=why, hint=hint)


def _shown(size: Sequence[int]) -> str:
    return "x".join(map(str, size)) if isinstance(size, Shape) else str(size)

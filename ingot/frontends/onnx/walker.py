"""An ONNX model → a graph. In: a path, bytes or ModelProto. Out: Graph, its constants in a store.

Called by the importer (importer.py). The file is loaded, its operators are checked (one error lists
all unsupported ones), its inputs get types, and graph_walk visits the nodes once. What the model
requires of dynamic dimensions (two are equal, one is in a range or a multiple) the solver learns on
the way. After an error the walk restarts with another choice (`Importer.choose`), if there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from ingot import ops
from ingot.frontends.common.limits import check_size
from ingot.frontends.common.solver import Range, SizeSolver
from ingot.frontends.onnx import converters
from ingot.frontends.onnx.border import bundle, input_operand
from ingot.frontends.onnx.functions import Library
from ingot.frontends.onnx.graph_walk import Scope, Walker
from ingot.frontends.onnx.hooks import Hook, Hooks
from ingot.frontends.onnx.inputs import input_names, is_map, map_types
from ingot.frontends.onnx.loading import Source, inputs_with_defaults, load, opsets
from ingot.frontends.onnx.node_order import Initializer, initializers_of, value_names
from ingot.frontends.onnx.operands import Operand, all_parts, mapped
from ingot.frontends.onnx.reading import Frame
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Bundle, Graph, Value, replace
from ingot.graph.store import ConstantStore
from ingot.support.errors import IngotError

assert converters.FAMILIES and ops.__all__  # importing them fills the two tables


def import_model(
    model: str | Path | bytes | onnx.ModelProto,
    store: ConstantStore,
    sizes: Mapping[str, int | Range] | None = None,
    kernels: Mapping[str, Hook] | None = None,
    example: Mapping[str, tuple[int, ...]] | None = None,
) -> Graph:
    """The model as a graph; its constants go to `store`. `sizes` specialises or constrains dynamic
    dimensions: a number, or an inclusive range. `kernels`: user kernels by operator name.
    `example`: shapes of the inputs, which decide how sizes that may differ are related."""
    library, frame = _checked(load(model), Hooks(kernels or {}))
    source = library.source
    graph = _import(library, frame, store, sizes or {}, example or {})
    store.files |= source.opened
    library.hooks.refuse_unused(node.op_type for node in source.model.graph.node)
    return graph


def check_operators(model: str | Path | bytes | onnx.ModelProto) -> None:
    """An error if the file is damaged, or with all operators that are not supported."""
    _checked(load(model), Hooks({}))


def _checked(source: Source, hooks: Hooks) -> tuple[Library, Frame]:
    library = Library(source, hooks)
    frame = Frame(source, opsets(source.model.opset_import, source.model.ir_version))
    library.check_all(source.model.graph, frame)
    return library, frame


def _import(
    library: Library,
    frame: Frame,
    store: ConstantStore,
    sizes: Mapping[str, int | Range],
    example: Mapping[str, tuple[int, ...]],
) -> Graph:
    """Walk the model with each choice in turn, until one fits."""
    first: IngotError | None = None
    names = [info.name for info in library.source.model.graph.input]
    while True:
        solver = SizeSolver(value_names(library.source.model.graph), sizes, example)
        try:
            graph = _walk_solved(library, frame, store, solver)
            solver.check_given(names)
            return graph
        except IngotError as error:
            first = first or error
            if not library.choices.backtrack():
                if error.code != "bad-option":  # a misspelt name leaves a dimension dynamic
                    solver.check_given(names)
                raise first from first.__cause__


def _walk_solved(library: Library, frame: Frame, store: ConstantStore, solver: SizeSolver) -> Graph:
    """One walk. If it fails after it has learnt of sizes, one more that knows them from the start:
    a node before that point may have been read in a more general way than it can be used."""
    graph = library.source.model.graph
    constants = _constants(library, solver)
    given = [info for info in graph.input if info.name not in constants]
    inputs: list[Operand] = []
    for info in given:
        if is_map(info):
            inputs += [Value(*part) for part in map_types(info, solver)]
            store.map_inputs.add(info.name)
        else:
            inputs.append(input_operand(info, solver))
    try:
        return _walk(library, frame, store, solver, inputs)
    except IngotError as error:
        if not solver.learnt or error.code == "bad-option":
            raise
    return _walk(library, frame, store, solver, inputs)


def _constants(library: Library, solver: SizeSolver) -> dict[str, Initializer]:
    """The initializers, without those that the call overrides for which the model is imported."""
    source = library.source
    overridden = solver.example.keys() & set(inputs_with_defaults(source))
    found = initializers_of(source.model.graph)
    return {name: tensor for name, tensor in found.items() if name not in overridden}


def _walk(
    library: Library, frame: Frame, store: ConstantStore, solver: SizeSolver, inputs: list[Operand]
) -> Graph:
    graph = library.source.model.graph
    inputs = [mapped(x, solver.resolve_value) for x in inputs]
    values = all_parts(inputs)
    for value in values:
        check_size(value.type, f"input {value.name!r}")
    taken = [*value_names(graph), *(v.name for v in values), *solver.symbols]
    g = GraphBuilder(graph.name or "model", store, taken, solver)
    g.inputs.extend(values)
    constants = _constants(library, solver)
    walker = Walker(g, library, Scope(frame, constants), None)
    made = walker.walk_graph(graph, inputs)
    solver.exclude_negative_sizes(made)
    bundles = _bundles(graph, constants, inputs, walker.results)
    return replace(solver.resolve_graph(made), bundles=bundles)


def _bundles(
    graph: onnx.GraphProto,
    constants: Mapping[str, Initializer],
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
) -> tuple[Bundle, ...]:
    """The inputs and outputs of the model that are no tensors."""
    names = input_names(graph.input, constants)
    names += [info.name for info in graph.output]
    found = (bundle(name, x) for name, x in zip(names, (*inputs, *outputs)))
    return tuple(b for b in found if b is not None)

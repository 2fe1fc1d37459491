"""An ONNX model → a graph. In: a path, bytes or ModelProto. Out: Graph, its constants in a store.

Called by pipeline.STAGES["import"]. The file is loaded, its operators are checked (one error lists
all unsupported ones), its inputs get types, and graph_walk visits the nodes. If the model
type-checks only under a constraint on dynamic dimensions (two are equal, one is in a range or a
multiple), the constraint is added and the walk restarts. It also restarts with another choice
(`Importer.choose`) after an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx

from ingot import ops
from ingot.frontends.onnx import converters
from ingot.frontends.onnx.functions import Library
from ingot.frontends.onnx.graph_walk import Scope, Walker
from ingot.frontends.onnx.hooks import Hook, Hooks
from ingot.frontends.onnx.inputs import DimConstraints, Range, SymbolTable, input_type
from ingot.frontends.onnx.limits import check_size
from ingot.frontends.onnx.loading import load, opsets
from ingot.frontends.onnx.node_order import initializers_of, value_names
from ingot.frontends.onnx.reading import Frame
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph, Value
from ingot.graph.store import ConstantStore
from ingot.ops.common import SizeMismatch
from ingot.support.errors import IngotError

assert converters.FAMILIES and ops.__all__  # importing them fills the two tables


def import_model(
    model: str | Path | bytes | onnx.ModelProto,
    store: ConstantStore,
    sizes: Mapping[str, int | Range] | None = None,
    kernels: Mapping[str, Hook] | None = None,
) -> Graph:
    """The model as a graph; its constants go to `store`. `sizes` specialises or constrains dynamic
    dimensions: a number, or an inclusive range. `kernels`: user kernels by operator name."""
    source = load(model)
    library = Library(source, Hooks(kernels or {}))
    frame = Frame(source, opsets(source.model.opset_import, source.model.ir_version))
    library.check_all(source.model.graph, frame)
    constraints = DimConstraints(sizes or {})
    first: IngotError | None = None
    while True:
        table = SymbolTable(value_names(source.model.graph), constraints)
        try:
            graph = _import(library, frame, table, store)
            break
        except IngotError as error:
            inferred = _inferred_constraints(error, constraints, table)
            if inferred is not None:
                constraints = inferred
                continue
            first = first or error
            if not library.choices.backtrack():
                if error.code != "bad-option":  # a misspelt name leaves a dimension dynamic
                    table.check_given()
                raise first from first.__cause__
            constraints = DimConstraints(sizes or {})  # inferred ones may not hold
    table.check_given()
    store.files |= source.opened
    library.hooks.refuse_unused(node.op_type for node in source.model.graph.node)
    return graph


def _import(library: Library, frame: Frame, table: SymbolTable, store: ConstantStore) -> Graph:
    graph = library.source.model.graph
    constants = initializers_of(graph)
    given = [info for info in graph.input if info.name not in constants]
    typed = [(info.name, input_type(info, table)) for info in given]
    typed = [(name, table.resolved(type)) for name, type in typed]
    for name, type in typed:
        check_size(type, f"input {name!r}")
    g = GraphBuilder(graph.name or "model", store, [*value_names(graph), *table.symbols])
    g.symbols.update(table.symbols)
    g.inputs.extend(Value(name, type) for name, type in typed)
    return Walker(g, library, Scope(frame, constants), None).walk_graph(graph, g.inputs)


def _inferred_constraints(
    error: BaseException, constraints: DimConstraints, table: SymbolTable
) -> DimConstraints | None:
    """If the error is a mismatch of dynamic sizes: the constraints under which they are equal."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, SizeMismatch):
        cause = cause.__cause__
    return None if cause is None else constraints.equated(*cause.sizes, table.symbols)

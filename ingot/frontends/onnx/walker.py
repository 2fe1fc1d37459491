"""An ONNX model → a graph. In: a path, bytes or ModelProto. Out: Graph, its constants in a store.

Called by pipeline.STAGES["import"]. The file is loaded, its operators are counted (every missing
one is named in one error), its inputs get types, and graph_walk goes over the nodes. Where two open
sizes must be equal for the model to make sense, that is taken to be so and the walk begins again;
so it does with another answer where a choice (`Importer.choose`) led nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx

from ingot import ops
from ingot.frontends.onnx import spellings
from ingot.frontends.onnx.functions import Library
from ingot.frontends.onnx.graph_walk import Scope, Walker
from ingot.frontends.onnx.hooks import Hook, Hooks
from ingot.frontends.onnx.inputs import Range, SizeRules, SymbolTable, input_type
from ingot.frontends.onnx.limits import check_size
from ingot.frontends.onnx.loading import load, opsets
from ingot.frontends.onnx.reading import Frame
from ingot.frontends.onnx.structure import initializers_of, value_names
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph, Value
from ingot.graph.store import ConstantStore
from ingot.ops.common import SizeMismatch
from ingot.support.errors import IngotError

assert spellings.FAMILIES and ops.__all__  # importing them fills the two tables


def import_model(
    model: str | Path | bytes | onnx.ModelProto,
    store: ConstantStore,
    sizes: Mapping[str, int | Range] | None = None,
    kernels: Mapping[str, Hook] | None = None,
) -> Graph:
    """The model as a graph; its constants go to `store`. `sizes` says what open sizes are: a
    number, or the first and the last they may be. `kernels` spell operators, by name."""
    source = load(model)
    library = Library(source, Hooks(kernels or {}))
    frame = Frame(source, opsets(source.model.opset_import, source.model.ir_version))
    library.check_all(source.model.graph, frame)
    rules = SizeRules(sizes or {})
    first: IngotError | None = None
    while True:
        table = SymbolTable(value_names(source.model.graph), rules)
        try:
            graph = _import(library, frame, table, store)
            break
        except IngotError as error:
            learnt = _lesson(error, rules, table)
            if learnt is not None:
                rules = learnt
                continue
            first = first or error
            if not library.choices.change():
                if error.code != "bad-option":  # a size by a wrong name is open, perhaps the reason
                    table.check_given()
                raise first from first.__cause__
            rules = SizeRules(sizes or {})  # what was learnt with another answer may not hold
    table.check_given()
    store.files |= source.opened
    library.hooks.refuse_unused(node.op_type for node in source.model.graph.node)
    return graph


def _import(library: Library, frame: Frame, table: SymbolTable, store: ConstantStore) -> Graph:
    graph = library.source.model.graph
    constants = initializers_of(graph)
    given = [info for info in graph.input if info.name not in constants]
    typed = [(info.name, input_type(info, table)) for info in given]
    typed = [(name, table.settled(type)) for name, type in typed]
    for name, type in typed:
        check_size(type, f"input {name!r}")
    g = GraphBuilder(graph.name or "model", store, [*value_names(graph), *table.symbols])
    g.symbols.update(table.symbols)
    g.inputs.extend(Value(name, type) for name, type in typed)
    return Walker(g, library, Scope(frame, constants), None).walk_graph(graph, g.inputs)


def _lesson(error: BaseException, rules: SizeRules, table: SymbolTable) -> SizeRules | None:
    """What must hold of the open sizes for the model to make sense at all, if that is the trouble:
    sizes that meet in one operator are equal, positions stay inside their table."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, SizeMismatch):
        cause = cause.__cause__
    return None if cause is None else rules.learn(*cause.sizes, table.symbols)

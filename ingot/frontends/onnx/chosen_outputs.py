"""Other outputs for a model: values inside it, by name. In: a loaded model, names of values or of
nodes. Out: the same model with these outputs, in this order. Called by the importer (importer.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx

from ingot.frontends.onnx.loading import Source
from ingot.support.errors import IngotError
from ingot.support.names import did_you_mean


def choose_outputs(source: Source, names: Sequence[str]) -> Source:
    """A node's name stands for its outputs; a value's own name comes first."""
    graph = source.model.graph
    values = {name: [name] for name in _values(graph)}
    nodes = {node.name: [x for x in node.output if x] for node in graph.node if node.name}
    known = {**nodes, **values}
    for name in names:
        if name not in known:
            what = f"outputs: no value or node of the model is called {name!r}"
            hint = did_you_mean(name, known) + "ingot show MODEL --stage import lists the nodes"
            raise IngotError("bad-option", what, where=source.name, hint=hint)
    chosen = dict.fromkeys(value for name in names for value in known[name])
    types = {info.name: info for info in (*graph.input, *graph.value_info, *graph.output)}
    model = onnx.ModelProto()
    model.CopyFrom(source.model)  # it may be the caller's
    del model.graph.output[:]
    model.graph.output.extend(types.get(name, onnx.ValueInfoProto(name=name)) for name in chosen)
    return replace(source, model=model)


def _values(graph: onnx.GraphProto) -> list[str]:
    inputs, constants = [x.name for x in graph.input], [x.name for x in graph.initializer]
    return [*inputs, *constants, *(name for node in graph.node for name in node.output if name)]

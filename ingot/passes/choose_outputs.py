"""Other outputs of a graph: values inside it, by name. Part of the first stage, for a model that is
a graph; importers of model files do the same by the names of the file."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.graph.ir import Graph, replace
from ingot.support.errors import IngotError
from ingot.support.names import did_you_mean


def choose_outputs(graph: Graph, names: Sequence[str]) -> Graph:
    """These values are the outputs, in this order."""
    values = {value.name: value for node in graph.nodes for value in node.outputs}
    for name in names:
        if name not in values:
            what = f"outputs: no node of the graph makes a value {name!r}"
            raise IngotError("bad-option", what, hint=did_you_mean(name, values))
    return replace(graph, outputs=tuple(values[name] for name in dict.fromkeys(names)))

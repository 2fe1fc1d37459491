"""Name the inputs that a run updates in place. Called by pipeline.STAGES["attach_state"]."""

from __future__ import annotations

from collections.abc import Mapping

from ingot.graph.ir import Graph, replace
from ingot.support.errors import IngotError


def attach_state(graph: Graph, pairs: Mapping[str, str]) -> Graph:
    """state={input: output}: after a run the input's array holds what the output would have"""
    inputs = {v.name: v for v in graph.inputs}
    outputs = {v.name: v for v in graph.outputs}
    for old, new in pairs.items():
        _check_name("input", old, inputs)
        _check_name("output", new, outputs)
        if inputs[old].type != outputs[new].type:
            raise IngotError(
                "bad-option",
                f"state {old!r} is {inputs[old].type}, its successor {new!r} {outputs[new].type}",
                why="an array can only be updated in place by one of its own type and shape",
                hint="export the model with a cache of fixed size, or keep the cache as an input",
            )
    if len(set(pairs.values())) != len(pairs):
        raise IngotError("bad-option", "two states have the same successor")
    return replace(graph, state=tuple(pairs.items()))


def _check_name(kind: str, name: str, known: Mapping[str, object]) -> None:
    if name not in known:
        raise IngotError(
            "bad-option",
            f"state: no {kind} is called {name!r}",
            hint=f"the {kind}s are {', '.join(known)}",
        )

"""Attaches state (a KV cache): inputs that a run updates in place. Called by the pipeline."""

from __future__ import annotations

from collections.abc import Mapping

from ingot.graph.ir import Graph, replace
from ingot.support.errors import IngotError


def attach_state(graph: Graph, pairs: Mapping[str, str]) -> Graph:
    """state={input: output}: after a run the input's array holds the output"""
    inputs = {v.name: v for v in graph.inputs}
    outputs = {v.name: v for v in graph.outputs}
    for old, new in pairs.items():
        _check_name("input", old, inputs)
        _check_name("output", new, outputs)
        if inputs[old].type != outputs[new].type:
            raise IngotError(
                "bad-option",
                f"state {old!r} is {inputs[old].type}, its successor {new!r} {outputs[new].type}",
                why="an in-place update needs one element type and shape",
                hint="export the model with a cache of static size, or pass the cache as an input",
            )
    if len(set(pairs.values())) != len(pairs):
        raise IngotError("bad-option", "two states have the same successor output")
    return replace(graph, state=tuple(pairs.items()))


def _check_name(kind: str, name: str, known: Mapping[str, object]) -> None:
    if name not in known:
        raise IngotError(
            "bad-option",
            f"state: the model has no {kind} {name!r}",
            hint=f"the {kind}s are {', '.join(known)}",
        )

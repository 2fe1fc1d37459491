"""Attaches state (a KV cache): inputs that a run updates in place. Called by the pipeline.

In: a graph, state={input: output}, and the capacity of states that grow. Out: the graph with its
state pairs. A pair of one type is only named; one that grows is rewritten (grow_state.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from ingot.graph.ir import Graph, Value, replace
from ingot.graph.types import same_size
from ingot.passes.grow_state import grow_states
from ingot.support.errors import IngotError

Capacity = int | Mapping[str, int]  # rows: of every state that grows, or by the name of its input


def attach_state(graph: Graph, pairs: Mapping[str, str], capacity: Capacity | None = None) -> Graph:
    """state={input: output}: after a run the input's array holds the output"""
    pairs = {**dict(graph.state), **pairs}
    _check_names(graph, pairs)
    _refuse_strings(graph, pairs)
    growing = _growing(graph, pairs)
    if capacity is None:
        if growing:
            raise _refused(graph, *next(iter(growing.items())))
        return replace(graph, state=tuple(pairs.items()))
    rows = _capacities(pairs, growing, capacity)
    return replace(grow_states(graph, growing, rows), state=tuple(pairs.items()))


def growing_dims(graph: Graph, pairs: Mapping[str, str]) -> set[str]:
    """The dynamic dimensions along which the states are shorter than the outputs that replace them,
    if they have such names: what a model file is imported for, from 0 rows on."""
    _check_names(graph, pairs)
    inputs, outputs = _by_name(graph)
    symbols = graph.symbol_map
    found = set()
    for old, new in _growing(graph, pairs).items():
        for a, b in zip(inputs[old].shape, outputs[new].shape):
            if not same_size(a, b) and str(a) in symbols:
                found.add(str(a))
    return found


def _refuse_strings(graph: Graph, pairs: Mapping[str, str]) -> None:
    held = [v.name for v in graph.inputs if v.name in pairs and v.dtype.is_string]
    if held:
        what = f"state {held[0]!r} holds strings, which a run cannot update in place"
        raise IngotError("bad-option", what, hint="give it as an input and an output")


def _by_name(graph: Graph) -> tuple[dict[str, Value], dict[str, Value]]:
    return {v.name: v for v in graph.inputs}, {v.name: v for v in graph.outputs}


def _growing(graph: Graph, pairs: Mapping[str, str]) -> dict[str, str]:
    """The pairs whose types differ."""
    inputs, outputs = _by_name(graph)
    return {old: new for old, new in pairs.items() if inputs[old].type != outputs[new].type}


def _refused(graph: Graph, old: str, new: str) -> IngotError:
    inputs, outputs = _by_name(graph)
    return IngotError(
        "bad-option",
        f"state {old!r} is {inputs[old].type}, its successor {new!r} {outputs[new].type}",
        why="an in-place update needs one element type and shape",
        hint="a cache that grows needs a capacity: compile with capacity=1024 (rows), or export "
        "the model with a cache of static size",
    )


def _capacities(
    pairs: Mapping[str, str], growing: Mapping[str, str], capacity: Capacity
) -> dict[str, int]:
    if not growing:
        why = "each state has the type of the output that replaces it"
        hint = "omit capacity=" if pairs else 'name the states: state={"past": "present"}'
        raise IngotError("bad-option", "capacity= is given, but no state grows", why=why, hint=hint)
    if isinstance(capacity, int):
        return dict.fromkeys(growing, capacity)
    for name in capacity:
        if name not in growing:
            what = f"capacity: {name!r} is not a state that grows"
            raise IngotError("bad-option", what, hint=f"these grow: {', '.join(growing)}")
    for name in growing:
        if name not in capacity:
            what = f"capacity: no rows are given for state {name!r}"
            raise IngotError("bad-option", what, hint="give a number for all states, or for each")
    return dict(capacity)


def _check_names(graph: Graph, pairs: Mapping[str, str]) -> None:
    inputs, outputs = _by_name(graph)
    for old, new in pairs.items():
        _check_name("input", old, inputs)
        _check_name("output", new, outputs)
    if len(set(pairs.values())) != len(pairs):
        raise IngotError("bad-option", "two states have the same successor output")


def _check_name(kind: str, name: str, known: Mapping[str, object]) -> None:
    if name not in known:
        raise IngotError(
            "bad-option",
            f"state: the model has no {kind} {name!r}",
            hint=f"the {kind}s are {', '.join(known)}",
        )

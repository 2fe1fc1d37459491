"""Makes a case smaller while it still goes wrong: fewer nodes, then smaller sizes.

In: a case, and a test whether one goes wrong. Out: the smallest found. Parts are taken from the
front, so that what is left is about the first wrong value; each part gets the values of the whole
run as its inputs, so that errors of earlier nodes do not count. Called by verify.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ingot.arith import expr as arith
from ingot.graph import verify
from ingot.graph.ir import ConstRef, Graph, Node, Value, make_attrs, replace
from ingot.graph.opdef import infer_types, lookup
from ingot.graph.store import ConstantStore
from ingot.graph.types import TensorType
from ingot.inspect.case import Case
from ingot.inspect.subgraph import computing, part
from ingot.support.errors import IngotError

Test = Callable[[Case], bool]
FEW_NODES = 16  # from here on each node is tried on its own
SMALL_SIZE = 8  # sizes up to this are not tried smaller
PERIOD = 16  # smaller sizes keep their remainder by this: vectors have tails


def fewer_nodes(case: Case, is_wrong: Test) -> Case:
    """The first nodes in a row that go wrong on their own, without those that are not needed."""
    chosen = computing(case.graph)
    smaller = True
    while smaller:
        smaller = False
        for candidate in _pieces(chosen):
            piece = cut(case, candidate)
            if piece is not None and is_wrong(piece):
                chosen, smaller = candidate, True
                break
    return cut(case, chosen) or case


def cut(case: Case, positions: Sequence[int]) -> Case | None:
    """The nodes at these positions, on the values of the whole run."""
    graph = part(case.graph, positions, case.values)
    if graph is None:
        return None
    return Case(graph, case.store, {v.name: case.values[v.name] for v in graph.inputs})


def _pieces(chosen: Sequence[int]) -> Iterator[list[int]]:
    """Parts to try: halves from the front and the middle, then without a few at either end, then
    without single nodes."""
    count, half = len(chosen), len(chosen) // 2
    if count < 2:
        return
    middle = (count - half) // 2
    for start in (0, count - half, middle):
        yield list(chosen[start : start + half])
    step = half // 2
    while step:
        yield list(chosen[: count - step])
        yield list(chosen[step:])
        step //= 2
    if count <= FEW_NODES:
        for i in reversed(range(count)):
            yield [*chosen[:i], *chosen[i + 1 :]]


# --- sizes ----------------------------------------------------------------------------------------


def smaller_sizes(case: Case, is_wrong: Test) -> Case:
    """Each size of the inputs and constants as small as it can be, the largest first."""
    for size in sorted(_sizes(case), reverse=True):
        for candidate in _candidates(size):
            piece = resized(case, size, candidate)
            if piece is not None and is_wrong(piece):
                case = piece
                break
    return case


def _sizes(case: Case) -> set[int]:
    arrays = [*case.feeds.values(), *(case.store.get(ref) for ref in constants(case.graph))]
    return {size for array in arrays for size in array.shape if size > SMALL_SIZE}


def constants(graph: Graph) -> list[ConstRef]:
    refs = (n.attr("value") for n in graph.nodes if n.op == "constant")
    return [ref for ref in refs if isinstance(ref, ConstRef)]


def _candidates(size: int) -> Iterator[int]:
    """1 or 2, then what has the same remainder: 5, 21, 37, 69, …"""
    yield from (1, 2)
    rest = size % PERIOD
    for power in range(math.ceil(math.log2(size))):
        smaller = rest + (PERIOD << power >> 1 if power else 0)
        if 2 < smaller < size:
            yield smaller


def resized(case: Case, old: int, new: int) -> Case | None:
    """Every axis of size `old` of the inputs and constants cut to `new`, and all types inferred
    again; None if the operators do not take that."""
    store = case.store.copy()
    feeds = {name: _cut_array(array, old, new) for name, array in case.feeds.items()}
    try:
        graph = _resized_graph(case.graph, store, old, new)
        verify.verify(graph)
        made = Case(graph, store, feeds)
        _ = made.values
    except (IngotError, ValueError, IndexError, TypeError):  # of numpy too: sizes do not fit
        return None
    return made


def _cut_array(array: np.ndarray, old: int, new: int) -> np.ndarray:
    index = tuple(slice(new if size == old else None) for size in array.shape)
    return np.ascontiguousarray(array[index]) if array.ndim else array


def _resized_graph(graph: Graph, store: ConstantStore, old: int, new: int) -> Graph:
    values = {v.name: _resized_value(v, old, new) for v in graph.inputs}
    nodes: list[Node] = []
    for node in graph.nodes:
        made = _resized_node(node, values, store, old, new)
        values |= {v.name: v for v in made.outputs}
        nodes.append(made)
    return replace(
        graph,
        inputs=tuple(values[v.name] for v in graph.inputs),
        outputs=tuple(values[v.name] for v in graph.outputs),
        nodes=tuple(nodes),
    )


def _resized_value(value: Value, old: int, new: int) -> Value:
    shape = tuple(arith.wrap(new) if arith.is_const(d, old) else d for d in value.shape)
    return replace(value, type=replace(value.tensor, shape=shape))


def _resized_node(
    node: Node, values: dict[str, Value], store: ConstantStore, old: int, new: int
) -> Node:
    ref = node.attr("value")
    if node.op == "constant" and isinstance(ref, ConstRef):
        smaller = store.add(_cut_array(store.get(ref), old, new))
        outputs = tuple(_resized_value(v, old, new) for v in node.outputs)
        return replace(node, attrs=make_attrs({"value": smaller}), outputs=outputs)
    inputs = tuple(v and values[v.name] for v in node.inputs)
    types = [None if v is None else v.type for v in inputs]
    attrs = {name: _resized_attr(value, old, new) for name, value in node.attrs}
    found = infer_types(lookup(node.op), types, attrs)
    outputs = tuple(_typed(v, type) for v, type in zip(node.outputs, found, strict=True))
    return replace(node, inputs=inputs, outputs=outputs, attrs=make_attrs(attrs))


def _typed(value: Value, type: TensorType) -> Value:
    return replace(value, type=replace(value.tensor, shape=type.shape))


def _resized_attr(value: Any, old: int, new: int) -> Any:
    """Shapes among the attributes change too; single numbers are axes and counts."""
    if isinstance(value, tuple):
        return tuple(new if _is_size(item, old) else item for item in value)
    return value


def _is_size(item: Any, old: int) -> bool:
    if isinstance(item, arith.Expr):
        return arith.is_const(item, old)
    return isinstance(item, int) and not isinstance(item, bool) and item == old

"""Topological sort of ONNX nodes, and checks of value names: duplicates, undefined names, cycles.

In: NodeProtos in file order, the names defined before them. Out: indices in topological order (the
file's order if that is one already). Called by walker.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence

import onnx

from ingot.frontends.onnx.reading import Frame, bare_node
from ingot.support.errors import IngotError

MAX_DEPTH = 64  # nesting of sub-graphs and function calls; heuristic

Reads = list[set[str]]
Initializer = onnx.TensorProto | onnx.SparseTensorProto


def order_nodes(
    nodes: Sequence[onnx.NodeProto],
    frame: Frame,
    given: Iterable[str],
    outer: Callable[[str], bool] = lambda name: False,
) -> list[int]:
    """Topological order. `given` names are defined before the first node; `outer` tests whether an
    enclosing graph defines a name."""
    producers = _producers(nodes, frame, set(given))
    before = set(given)
    reads: Reads = [set(read_names(node, frame.depth)) for node in nodes]
    for index, names in enumerate(reads):
        for name in sorted(names):
            if name not in producers and name not in before and not outer(name):
                where = bare_node(nodes[index], index, frame).where
                raise IngotError(
                    "bad-model", f"it reads {name!r}, which is not defined", where=where
                )
    return _topological_order(nodes, frame, producers, reads)


def read_names(node: onnx.NodeProto, depth: int = 0) -> Iterator[str]:
    """The names that a node reads: its operands, and the captures of its sub-graphs."""
    yield from (name for name in node.input if name)
    for graph in graphs_of(node):
        check_depth(depth + 1, f"node {node.name!r} ({node.op_type})")
        yield from free_names(graph, depth + 1)


def graphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def free_names(graph: onnx.GraphProto, depth: int) -> set[str]:
    """Names that a sub-graph uses but does not define: its captures."""
    defined = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    defined |= {t.values.name for t in graph.sparse_initializer}
    defined |= {name for node in graph.node for name in node.output}
    used = {name for node in graph.node for name in read_names(node, depth)}
    used |= {v.name for v in graph.output}
    return used - defined


def check_depth(depth: int, where: str) -> None:
    if depth > MAX_DEPTH:
        raise IngotError(
            "bad-model",
            f"sub-graphs and function calls are nested more than {MAX_DEPTH} deep",
            where=where,
            why="a recursive function would cause this",
        )


def _producers(nodes: Sequence[onnx.NodeProto], frame: Frame, given: set[str]) -> dict[str, int]:
    """Value name → index of the node that produces it."""
    producers: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in producers or name in given:
                first = "an input or initializer"
                if name in producers:
                    first = bare_node(nodes[producers[name]], producers[name], frame).where
                where = bare_node(node, index, frame).where
                why = f"{first} defines it too"
                raise IngotError("bad-model", f"{name!r} is defined twice", where=where, why=why)
            producers[name] = index
    return producers


def _topological_order(
    nodes: Sequence[onnx.NodeProto], frame: Frame, producers: dict[str, int], reads: Reads
) -> list[int]:
    """Kahn's algorithm with a heap, so that the file's order is kept where possible."""
    needs = [{producers[name] for name in names if name in producers} for names in reads]
    users: list[list[int]] = [[] for _ in nodes]
    for index, sources in enumerate(needs):
        for source in sources:
            users[source].append(index)
    waiting = [len(sources) for sources in needs]
    ready = [index for index, count in enumerate(waiting) if count == 0]
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for user in users[index]:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, user)
    if len(order) < len(nodes):
        raise _cycle_error(nodes, frame, needs, set(range(len(nodes))) - set(order))
    return order


def _cycle_error(
    nodes: Sequence[onnx.NodeProto], frame: Frame, needs: list[set[int]], remaining: set[int]
) -> IngotError:
    index, path = min(remaining), []
    while index not in path:  # every remaining node needs another one, so this finds a cycle
        path.append(index)
        index = min(needs[index] & remaining)
    cycle = path[path.index(index) :][::-1]
    names = [bare_node(nodes[i], i, frame).name for i in cycle]
    shown = " → ".join(repr(name) for name in [*names[:6], *(["…"] if len(names) > 6 else [])])
    where = bare_node(nodes[cycle[0]], cycle[0], frame).where
    return IngotError("bad-model", "the nodes form a cycle", where=where, why=f"cycle {shown}")


# --- names --------------------------------------------------------------------------------------


def value_names(graph: onnx.GraphProto) -> list[str]:
    """Every value name of the graph, to be reserved for those values."""
    names = [info.name for info in graph.input] + [info.name for info in graph.output]
    names += [name for node in graph.node for name in node.output if name]
    return list(dict.fromkeys([*names, *initializers_of(graph)]))


def initializers_of(graph: onnx.GraphProto) -> dict[str, Initializer]:
    """By name. Of two with one name the last counts, as in ONNX Runtime."""
    found: dict[str, Initializer] = {}
    found.update((t.name, t) for t in graph.initializer)
    found.update((t.values.name, t) for t in graph.sparse_initializer)
    return found


def check_unique(names: Sequence[str], where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise IngotError("bad-model", f"{name!r} is defined twice", where=where)
        seen.add(name)

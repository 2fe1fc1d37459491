"""The order and the names of a list of ONNX nodes: sorted, and refused if they contradict.

In: NodeProtos in file order, the names that exist before them. Out: indices in an order that
defines before it uses (the file's own order where that is sound). Called by walker.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence

import onnx

from ingot.frontends.onnx.reading import Frame, bare_node
from ingot.support.errors import IngotError

MAX_DEPTH = 64  # of sub-graphs and function calls inside each other

Reads = list[set[str]]
Initializer = onnx.TensorProto | onnx.SparseTensorProto


def order_nodes(
    nodes: Sequence[onnx.NodeProto],
    frame: Frame,
    given: Iterable[str],
    outer: Callable[[str], bool] = lambda name: False,
) -> list[int]:
    """Topological order. `given` names exist before the first node; `outer` tells of names that an
    enclosing graph holds."""
    makers = _makers(nodes, frame, set(given))
    before = set(given)
    reads: Reads = [set(read_names(node, frame.depth)) for node in nodes]
    for index, names in enumerate(reads):
        for name in sorted(names):
            if name not in makers and name not in before and not outer(name):
                where = bare_node(nodes[index], index, frame).where
                raise IngotError(
                    "bad-model", f"it reads {name!r}, which nothing makes", where=where
                )
    return _kahn(nodes, frame, makers, reads)


def read_names(node: onnx.NodeProto, depth: int = 0) -> Iterator[str]:
    """What a node reads: its operands, and what its sub-graphs take from outside."""
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
    """Names a sub-graph uses but does not define."""
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
            why="a function that calls itself does this",
        )


def _makers(nodes: Sequence[onnx.NodeProto], frame: Frame, given: set[str]) -> dict[str, int]:
    """Value name → the one node that makes it."""
    makers: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in makers or name in given:
                first = "an input or initializer"
                if name in makers:
                    first = bare_node(nodes[makers[name]], makers[name], frame).where
                where = bare_node(node, index, frame).where
                why = f"{first} makes it too"
                raise IngotError("bad-model", f"{name!r} is made twice", where=where, why=why)
            makers[name] = index
    return makers


def _kahn(
    nodes: Sequence[onnx.NodeProto], frame: Frame, makers: dict[str, int], reads: Reads
) -> list[int]:
    needs = [{makers[name] for name in names if name in makers} for names in reads]
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
    nodes: Sequence[onnx.NodeProto], frame: Frame, needs: list[set[int]], stuck: set[int]
) -> IngotError:
    index, path = min(stuck), []
    while index not in path:  # every stuck node needs another stuck one, so this closes a cycle
        path.append(index)
        index = min(needs[index] & stuck)
    cycle = path[path.index(index) :][::-1]
    names = [bare_node(nodes[i], i, frame).name for i in cycle]
    shown = " → ".join(repr(name) for name in [*names[:6], *(["…"] if len(names) > 6 else [])])
    where = bare_node(nodes[cycle[0]], cycle[0], frame).where
    return IngotError("bad-model", "nodes wait for each other", where=where, why=f"cycle {shown}")


# --- names --------------------------------------------------------------------------------------


def value_names(graph: onnx.GraphProto) -> list[str]:
    """Every value name of the graph, kept free for the values it names."""
    names = [info.name for info in graph.input] + [info.name for info in graph.output]
    names += [name for node in graph.node for name in node.output if name]
    return list(dict.fromkeys([*names, *initializers_of(graph)]))


def initializers_of(graph: onnx.GraphProto) -> dict[str, Initializer]:
    found: dict[str, Initializer] = {}
    where = f"graph {graph.name!r}"
    refuse_twice(
        [t.name for t in graph.initializer] + [t.values.name for t in graph.sparse_initializer],
        where,
    )
    found.update((t.name, t) for t in graph.initializer)
    found.update((t.values.name, t) for t in graph.sparse_initializer)
    return found


def refuse_twice(names: Sequence[str], where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise IngotError("bad-model", f"{name!r} is defined twice", where=where)
        seen.add(name)

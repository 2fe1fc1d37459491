"""What a graph says about a model before anything is compiled: operators, weights, memory, FLOPs.

In: an imported graph. Out: `Facts`, as `ingot check` prints them. Needs no weights: a `QuickStore`
reads none of the large ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ingot import dtypes, pipeline
from ingot.arith import expr as arith
from ingot.graph.ir import ConstRef, Graph, Node, Value
from ingot.graph.opdef import defn
from ingot.graph.store import ConstantStore
from ingot.graph.types import TensorType, stored
from ingot.support.origins import model_nodes

LARGE_BYTES = 1 << 16  # constants from here on are not read: no shape or axis is so long


class QuickStore(ConstantStore):
    """Does not hash large constants, so that the pages of a mapped file are not even read. Equal
    ones count twice."""

    def add(self, array: np.ndarray) -> ConstRef:
        if array.nbytes < LARGE_BYTES or array.dtype.kind in "OUT":
            return super().add(array)
        return self._put(f"unread {len(self)}", array)


@dataclass(frozen=True)
class Operator:
    """An operator of the model; `becomes`: operators of the graph that its nodes were read as."""

    name: str
    nodes: int
    becomes: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """None: it depends on dynamic dimensions. Bytes of arrays that a caller has, of the weights,
    and of the values between nodes that are needed at one time, before nodes are fused."""

    operators: tuple[Operator, ...]
    parameters: int
    weight_bytes: int
    port_bytes: int | None
    live_bytes: int | None
    multiply_adds: int | None
    has_loops: bool  # of which one iteration is counted

    @property
    def flops(self) -> int | None:
        """Of matrix multiplications, convolutions and recurrent layers; an FMA is two."""
        return None if self.multiply_adds is None else 2 * self.multiply_adds


def facts(graph: Graph) -> Facts:
    nodes = list(_nodes(graph))
    constants = {ref.digest: ref for ref in pipeline.constants_of(graph)}.values()
    ports = (value.type for value in (*graph.inputs, *graph.outputs))
    return Facts(
        operators=tuple(_operators(nodes)),
        parameters=sum(math.prod(ref.shape) for ref in constants),
        weight_bytes=sum(_constant_bytes(ref) for ref in constants),
        port_bytes=_sum(_bytes(type) for type in ports),
        live_bytes=_live_bytes(graph),
        multiply_adds=_sum(map(_multiply_adds, nodes)),
        has_loops=any(any(node.subgraphs) for node in nodes),
    )


def _nodes(graph: Graph) -> Iterator[Node]:
    """All nodes, those of sub-graphs too."""
    todo = [graph]
    while todo:
        for node in todo.pop().nodes:
            yield node
            todo += [inside for _, inside in node.subgraphs]


def _operators(nodes: Iterable[Node]) -> Iterator[Operator]:
    """By the model's operators, the most frequent first."""
    origins: dict[str, set[str]] = {}
    becomes: dict[str, dict[str, None]] = {}
    for node in nodes:
        for found in model_nodes(node.origin) if node.op != "constant" else ():
            origins.setdefault(found.operator, set()).add(node.origin)
            becomes.setdefault(found.operator, {})[node.op] = None
    for name in sorted(origins, key=lambda name: (-len(origins[name]), name)):
        yield Operator(name, len(origins[name]), tuple(becomes[name]))


def _multiply_adds(node: Node) -> int | None:
    types = [None if value is None else value.type for value in node.inputs]
    outputs = [value.type for value in node.outputs]
    return arith.as_int(defn(node).multiply_adds(types, outputs, node.attr_map))


def _live_bytes(graph: Graph) -> int | None:
    """The most bytes that values between nodes take at one time, in the graph's order. Inputs,
    outputs and what is computed from constants alone are not counted, views share their operand's
    memory."""
    base, constant = _bases(graph), _constant_values(graph)
    last = {base[v.name]: i for i, n in enumerate(graph.nodes) for v in n.inputs if v is not None}
    kept = constant | {base[value.name] for value in (*graph.inputs, *graph.outputs)}
    ends: dict[int, list[int]] = {}
    live = most = 0
    for i, node in enumerate(graph.nodes):
        made = [v for v in node.outputs if base[v.name] == v.name and v.name not in kept]
        for value in made:
            size = _bytes(value.type)
            if size is None:
                return None
            live += size
            ends.setdefault(last.get(value.name, i), []).append(size)
        most = max(most, live)
        live -= sum(ends.pop(i, ()))
    return most


def _constant_values(graph: Graph) -> set[str]:
    found: set[str] = set()
    for node in graph.nodes:
        if all(v is None or v.name in found for v in node.inputs) and (
            node.inputs or node.op == "constant"
        ):
            found |= {value.name for value in node.outputs}
    return found


def _bases(graph: Graph) -> Mapping[str, str]:
    """The value whose memory each value has."""
    base = {value.name: value.name for value in graph.inputs}
    for node in graph.nodes:
        for value in node.outputs:
            first: Value | None = node.inputs[0] if node.inputs else None
            is_view = first is not None and defn(node).is_view
            base[value.name] = base[first.name] if first and is_view else value.name
    return base


def _bytes(type: TensorType) -> int | None:
    count = arith.as_int(type.numel)
    return None if count is None else count * stored(type).dtype.numpy.itemsize


def _constant_bytes(ref: ConstRef) -> int:
    return math.prod(ref.shape) * dtypes.of(ref.dtype).numpy.itemsize


def _sum(numbers: Iterable[int | None]) -> int | None:
    found = list(numbers)
    return None if None in found else sum(n for n in found if n is not None)

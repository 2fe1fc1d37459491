"""The graph rewriter that passes share: copies a graph node by node while replacing values and
sizes. In: a Graph. Out: a new Graph with the same input and output names.

    edit = Editor(graph, store)
    for node in graph.nodes:
        node = edit.current(node)              # operands and sizes as they are now
        if is_identity(node):
            edit.replace(node, [node.inputs[0]])
        else:
            edit.keep(node)
    return edit.finish()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from ingot.arith import expr as arith
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import ConstRef, Graph, Node, Value, replace
from ingot.graph.opdef import Kind, defn
from ingot.graph.store import ConstantStore
from ingot.graph.substitute import substitute_node, substitute_type
from ingot.graph.types import Type, same_size
from ingot.graph.verify import attr_dims, type_dims, without_symbols


class Editor:
    """A graph being rewritten. `g` builds new nodes; inputs and outputs keep their names."""

    def __init__(self, graph: Graph, store: ConstantStore, taken: Iterable[str] = ()):
        names = [v.name for v in values_of(graph)]
        self.graph, self.store = graph, store
        self.g = GraphBuilder(graph.name, store, [*names, *taken])
        self.g.inputs = list(graph.inputs)
        self.g.symbols = dict(graph.symbol_map)
        self.sizes: dict[str, arith.IntLike] = {}
        self._new: dict[str, Value] = {}
        self._producers: dict[str, Node] = {}
        self._seen = 0

    def current(self, node: Node) -> Node:
        """The node with replaced operands and sizes."""
        sized = substitute_node(node, self.sizes)
        inputs = tuple(v if v is None else self.latest(v) for v in sized.inputs)
        return sized if inputs == sized.inputs else replace(sized, inputs=inputs)

    def latest(self, value: Value) -> Value:
        """The value that now replaces this one."""
        return self._new.get(value.name, value)

    def keep(self, node: Node) -> None:
        """Append a node; later uses of its outputs take its types."""
        self.g.nodes.append(node)
        self._new.update({v.name: v for v in node.outputs})

    def replace(self, node: Node, values: Sequence[Value]) -> None:
        """Replace uses of the node's outputs by `values` from here on."""
        self._new.update({old.name: new for old, new in zip(node.outputs, values, strict=True)})

    def producer(self, value: Value | None) -> Node | None:
        """The new graph's node that produces a value; None for an input or an absent operand."""
        for node in self.g.nodes[self._seen :]:
            self._producers.update({v.name: node for v in node.outputs})
        self._seen = len(self.g.nodes)
        return None if value is None else self._producers.get(value.name)

    def constant(self, value: Value | None) -> np.ndarray | None:
        """The array of a constant; None for any other value."""
        producer = self.producer(value)
        ref = constant_ref(producer) if producer is not None else None
        return None if ref is None else self.store.get(ref)

    def is_constant(self, value: Value) -> bool:
        producer = self.producer(value)
        return producer is not None and constant_ref(producer) is not None

    def finish(self) -> Graph:
        """The new graph. Outputs keep their names: a replaced output is renamed, or copied by an
        `identity` if it is also an input or another output."""
        fixed = {v.name for v in self.graph.inputs} | {v.name for v in self.graph.outputs}
        renamed: dict[str, Value] = {}
        for old in dict.fromkeys(self.graph.outputs):
            value = self.latest(old)
            if value.name == old.name:
                continue
            wanted = Value(old.name, substitute_type(old.type, self.sizes))
            if value.name in fixed or value.name in renamed or self.producer(value) is None:
                origin = self.graph.producers()[old.name].origin
                value = renamed.get(value.name, value)
                self.g.nodes.append(Node("identity", (value,), (wanted,), (), origin))
            else:
                renamed[value.name] = wanted
        nodes = [rename_values(n, renamed) for n in self.g.nodes]
        made = {v.name: v for n in nodes for v in n.outputs} | {v.name: v for v in self.g.inputs}
        outputs = [made[v.name] for v in self.graph.outputs]
        symbols = {n: s for n, s in self.g.symbols.items() if n not in self.sizes}
        return replace(
            self.graph,
            nodes=tuple(nodes),
            outputs=tuple(outputs),
            symbols=tuple(symbols.values()),
        )


def values_of(graph: Graph) -> Iterator[Value]:
    yield from graph.inputs
    for node in graph.nodes:
        yield from node.outputs


def symbol_names(graph: Graph) -> set[str]:
    """The symbols declared here or in any sub-graph."""
    names = {s.name for s in graph.symbols}
    for node in graph.nodes:
        for _, inner in node.subgraphs:
            names |= symbol_names(inner)
    return names


def map_subgraphs(node: Node, fn: Callable[[Graph], Graph]) -> Node:
    """The node with `fn` applied to each sub-graph; the same object if nothing changed."""
    attrs = tuple((k, fn(v) if isinstance(v, Graph) else v) for k, v in node.attrs)
    same = all(a[1] is b[1] for a, b in zip(attrs, node.attrs))
    return node if same else replace(node, attrs=attrs)


def rename_values(node: Node, renamed: Mapping[str, Value]) -> Node:
    if not renamed:
        return node
    inputs = tuple(v if v is None else renamed.get(v.name, v) for v in node.inputs)
    outputs = tuple(renamed.get(v.name, v) for v in node.outputs)
    return replace(node, inputs=inputs, outputs=outputs)


def constant_ref(node: Node) -> ConstRef | None:
    """The reference of a `constant` node; None for any other node."""
    ref = node.attr("value") if node.op == "constant" else None
    return ref if isinstance(ref, ConstRef) else None


def mentioned_symbols(node: Node, *, outputs: bool = True) -> set[str]:
    """Symbols used in a node's types, attributes and sub-graphs; those it only binds are not
    included."""
    dims = [d for v in node.outputs for d in type_dims(v.type)] if outputs else []
    dims += attr_dims(without_symbols(node))
    names = {n for d in dims for n in arith.free_vars(d)}
    for _, inner in node.subgraphs:
        names |= outer_symbols(inner)
    return names


def outer_symbols(graph: Graph) -> set[str]:
    """Symbols used in a sub-graph, wherever they are declared."""
    names = {n for v in graph.inputs for d in type_dims(v.type) for n in arith.free_vars(d)}
    for node in graph.nodes:
        names |= mentioned_symbols(node)
    return names


def result_symbols(graph: Graph) -> frozenset[str]:
    """Symbols in the types of a graph's outputs."""
    dims = (d for v in graph.outputs for d in type_dims(v.type))
    return frozenset(n for d in dims for n in arith.free_vars(d))


def same_shape(a: Type, b: Type) -> bool:
    """Whether two tensors are known to have one shape, for every value of the symbols."""
    return a.rank == b.rank and all(same_size(x, y) for x, y in zip(a.shape, b.shape))


def widens(node: Node) -> bool:
    """Is the node cheap, by element, and are its elements at least four times as wide as the
    numbers of its first operand? Its readers had better read the operand. (Not a mask: it is
    small, and attention would select by it in each layer.)"""
    op, x = defn(node), node.inputs[0] if node.inputs else None
    if x is None or not op.cheap or op.kind_of(node) is not Kind.ELEMENTWISE or x.dtype.is_bool:
        return False
    (out, *_) = node.outputs
    is_wide = 4 * x.dtype.storage_bytes <= out.dtype.storage_bytes
    return is_wide and same_shape(x.type, out.type)


def same_type(a: Type, b: Type) -> bool:
    """Whether one value may replace the other: types equal after simplification of the sizes."""
    if a == b:
        return True
    return same_shape(a, b) and replace(a, shape=b.shape) == b

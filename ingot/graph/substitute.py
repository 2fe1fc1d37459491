"""Symbols of a graph replaced by sizes. In: a Graph, Node or Type, and sizes by symbol. Out: the
same with the sizes in its types and attributes. Called by front ends and passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node, Value, make_attrs, replace
from ingot.graph.opdef import defn
from ingot.graph.types import Type
from ingot.graph.verify import bound_symbols, without_symbols

Env = Mapping[str, arith.IntLike]


def substitute_graph(graph: Graph, env: Env) -> Graph:
    """The graph with symbols replaced by sizes; the replaced ones are no longer declared."""
    sizes = dict(env)
    inputs = tuple(_substitute_value(v, sizes) for v in graph.inputs)
    nodes = tuple(substitute_node(n, sizes) for n in graph.nodes)
    outputs = tuple(_substitute_value(v, sizes) for v in graph.outputs)
    symbols = tuple(s for s in graph.symbols if s.name not in sizes)
    return replace(graph, inputs=inputs, outputs=outputs, nodes=nodes, symbols=symbols)


def map_sizes(graph: Graph, size: Callable[[arith.Expr], arith.Expr]) -> Graph:
    """The graph with every size of its types and attributes mapped; its symbols stay declared."""

    def value(v: Value) -> Value:
        return Value(v.name, replace(v.type, shape=tuple(map(size, v.type.shape))))

    def attr(a: Any) -> Any:
        match a:
            case arith.Expr():
                new = size(a)
                return new.value if isinstance(new, arith.Const) else new
            case tuple():
                return tuple(map(attr, a))
            case Graph():
                return map_sizes(a, size)
        return a

    def node(n: Node) -> Node:
        inputs = tuple(None if v is None else value(v) for v in n.inputs)
        attrs = make_attrs({k: attr(a) for k, a in n.attrs})
        return replace(n, inputs=inputs, outputs=tuple(map(value, n.outputs)), attrs=attrs)

    inputs, outputs = tuple(map(value, graph.inputs)), tuple(map(value, graph.outputs))
    return replace(graph, inputs=inputs, outputs=outputs, nodes=tuple(map(node, graph.nodes)))


def substitute_node(node: Node, sizes: dict[str, arith.IntLike]) -> Node:
    """The node with symbols replaced; a symbol that it binds must be replaced by another symbol.
    Symbols that the node no longer needs to bind (the branches of an `if` now agree) are added to
    `sizes` for the nodes after it."""
    if not sizes:
        return node
    own = {name: arith.substitute(arith.Var(name), sizes) for name in bound_symbols(node)}
    if own:
        resolved = defn(node).resolved_symbols(node.attr_map, sizes)
        own = {name: new for name, new in own.items() if name not in resolved}
        sizes |= {name: arith.substitute(size, sizes) for name, size in resolved.items()}
    inputs = tuple(v if v is None else _substitute_value(v, sizes) for v in node.inputs)
    outputs = tuple(_substitute_value(v, sizes) for v in node.outputs)
    attrs = {k: _substitute_attr(v, sizes) for k, v in without_symbols(node)}
    attrs |= {"symbols": tuple(_name(new) for new in own.values())} if own else {}
    return replace(node, inputs=inputs, outputs=outputs, attrs=make_attrs(attrs))


def _name(symbol: arith.Expr) -> str:
    assert isinstance(symbol, arith.Var), f"a bound size cannot become {symbol}"
    return symbol.name


def substitute_type(type: Type, env: Env) -> Type:
    shape = tuple(arith.substitute(d, env) for d in type.shape)
    return type if shape == type.shape else replace(type, shape=shape)


def _substitute_value(value: Value, env: Env) -> Value:
    type = substitute_type(value.type, env)
    return value if type is value.type else Value(value.name, type)


def _substitute_attr(value: Any, env: Env) -> Any:
    if isinstance(value, arith.Expr):
        new = arith.substitute(value, env)
        return new.value if isinstance(new, arith.Const) else new
    if isinstance(value, tuple):
        return tuple(_substitute_attr(v, env) for v in value)
    return substitute_graph(value, env) if isinstance(value, Graph) else value

"""The graph verifier: checks the IR's invariants. In: a Graph. Out: nothing, or a bad-graph error
that names the node. Called after every pass and front end; each valid graph goes to `HOOKS`.

1. A value has one definition, before its uses, and every use repeats its type.
2. A node's declared types agree with what its operator infers from its operands.
3. A symbol is declared once and bound before it is used: by an axis of a graph input whose size is
   that bare symbol, by the growth of the states, or by the one node that lists it in its
   `symbols` attribute.
4. A sub-graph reads only its own inputs. It may use the symbols of the enclosing graphs; a symbol
   that it declares again is the same symbol.
5. A state pair names an input and an output of equal type. States that grow have their rows along
   an axis of static size, which is no less than the symbol of the rows can be.
6. A constant's type is its reference's.
7. Views are boxes of their bases (views.py).
8. The values of a bundle are adjacent inputs, or adjacent outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.ir import ConstRef, Graph, Node, Value
from ingot.graph.opdef import infer_types, lookup
from ingot.graph.types import (
    Symbol,
    TensorType,
    Type,
    tensor,
)
from ingot.graph.views import verify_views
from ingot.support.errors import IngotError

HOOKS: list[Callable[[Graph], None]] = []


def verify(graph: Graph) -> None:
    """Raise a bad-graph error unless every invariant at the top of this file holds."""
    _verify(graph, {}, frozenset())
    for hook in HOOKS:
        hook(graph)


def _verify(graph: Graph, outer: Mapping[str, Symbol], outer_bound: frozenset[str]) -> None:
    symbols = _declared(graph, outer)
    bound = outer_bound | _bound_by_inputs(graph)
    defined: dict[str, Value] = {}
    for value in graph.inputs:
        _define(graph, defined, value, f"an input of {graph.name}")
        _check_mentions(symbols, bound, type_dims(value.type), f"input {value.name!r}")
    for node in graph.nodes:
        bound = _verify_node(graph, node, defined, symbols, bound)
    for value in graph.outputs:
        _check_use(defined, value, f"an output of {graph.name}")
    _verify_state(graph)
    _verify_bundles(graph)
    verify_views(graph)


def _declared(graph: Graph, outer: Mapping[str, Symbol]) -> dict[str, Symbol]:
    names = [s.name for s in graph.symbols]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise _bad(f"symbol {twice[0]!r} is declared twice", f"graph {graph.name}")
    for s in graph.symbols:
        if s.source not in ("input", "state", "node") or s.divisor < 1 or s.low < 0:
            raise _bad(f"symbol {s.name!r} has an unknown source or an impossible range")
        if s.high is not None and s.high < s.low:
            raise _bad(f"symbol {s.name!r} has the empty range {s.low}..{s.high}")
    return {**outer, **graph.symbol_map}


def _bound_by_inputs(graph: Graph) -> frozenset[str]:
    dims = (d for v in graph.inputs for d in type_dims(v.type))
    found = {found[0] for d in dims if (found := arith.solve_var(d, 0))}
    return frozenset(found if graph.growth is None else {*found, graph.growth.rows})


def _define(graph: Graph, defined: dict[str, Value], value: Value, where: str) -> None:
    if value.name in defined:
        raise _bad(f"value {value.name!r} is defined twice", where)
    defined[value.name] = value


def _check_use(defined: Mapping[str, Value], value: Value, where: str) -> None:
    known = defined.get(value.name)
    if known is None:
        raise _bad(f"value {value.name!r} is used before it is defined", where)
    if known.type != value.type:
        what = f"value {value.name!r} is used as {value.type} but defined as {known.type}"
        raise _bad(what, where)


def _verify_node(
    graph: Graph,
    node: Node,
    defined: dict[str, Value],
    symbols: Mapping[str, Symbol],
    bound: frozenset[str],
) -> frozenset[str]:
    """Check one node; returns the symbols bound after it."""
    where = describe(node)
    for value in node.inputs:
        if value is not None:
            _check_use(defined, value, where)
    _check_attrs(node, where)
    own = bound_symbols(node)
    _check_mentions(symbols, bound, attr_dims(without_symbols(node)), where)
    for name in own:
        listed = graph.symbol_map.get(name)
        if listed is None or listed.source != "node":
            raise _bad(f"symbol {name!r} is bound here but not declared with source 'node'", where)
        if name in bound or own.count(name) > 1:
            raise _bad(f"symbol {name!r} is bound twice", where)
    after = bound | set(own)
    for value in node.outputs:
        _define(graph, defined, value, where)
        _check_mentions(symbols, after, type_dims(value.type), where)
    for _, subgraph in node.subgraphs:
        _verify(subgraph, symbols, bound)
    _check_types(node, symbols, where)
    return after


def _check_mentions(
    symbols: Mapping[str, Symbol], bound: frozenset[str], dims: Iterable[arith.Expr], where: str
) -> None:
    for name in sorted({n for d in dims for n in arith.free_vars(d)}):
        if name not in symbols:
            raise _bad(f"symbol {name!r} is used but not declared", where)
        if name not in bound:
            raise _bad(f"symbol {name!r} is used before it is bound", where)


def _check_attrs(node: Node, where: str) -> None:
    names = [name for name, _ in node.attrs]
    if names != sorted(set(names)):
        raise _bad("attributes are not sorted by name, or one is duplicated", where)
    for name, value in node.attrs:
        if not _is_attr(value):
            raise _bad(
                f"attribute {name}={value!r} is of no kind in the grammar (graph/ir.py)", where
            )


def _is_attr(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(_is_attr(v) for v in value)
    kinds = bool | int | float | str | arith.Expr | dtypes.DType | ConstRef | Graph
    return value is None or isinstance(value, kinds)


def _check_types(node: Node, symbols: Mapping[str, Symbol], where: str) -> None:
    declared = [v.type for v in node.outputs]
    ref = node.attr("value")
    if node.op == "constant" and isinstance(ref, ConstRef):
        inferred: list[Any] = [tensor(dtypes.of(ref.dtype), *ref.shape)]
    else:
        inferred = list(_infer(node, where))
    if len(inferred) != len(declared):
        raise _bad(f"{node.op} has {len(inferred)} outputs, not {len(declared)}", where)
    for value, made in zip(node.outputs, inferred):
        exact = lookup(node.op).infers_layouts
        if not (value.type == made if exact else types_agree(value.type, made, symbols)):
            what = f"{value.name!r} is declared {value.type} but {node.op} infers {made}"
            raise _bad(what, where)


def _infer(node: Node, where: str) -> list[TensorType]:
    types = [None if v is None else v.type for v in node.inputs]
    try:
        return infer_types(lookup(node.op), types, node.attr_map)
    except IngotError as error:
        raise IngotError(
            "bad-graph", error.what, where=where, why=error.why, hint=error.hint
        ) from error


def _verify_state(graph: Graph) -> None:
    inputs = {v.name: v for v in graph.inputs}
    outputs = {v.name: v for v in graph.outputs}
    for before, after in graph.state:
        if before not in inputs or after not in outputs:
            raise _bad(f"state {before!r} -> {after!r} is not an input and an output of the graph")
        if inputs[before].type != outputs[after].type:
            kinds = f"{inputs[before].type} and {outputs[after].type}"
            raise _bad(f"state {before!r} -> {after!r} has different types: {kinds}")
    for side in zip(*graph.state):
        if len(set(side)) != len(side):
            raise _bad("an input or output is in two state pairs")
    _verify_growth(graph)


def _verify_bundles(graph: Graph) -> None:
    sides = [[v.name for v in values] for values in (graph.inputs, graph.outputs)]
    for bundle in graph.bundles:
        own, count = list(bundle.values), len(bundle.values)
        runs = [side[i : i + count] for side in sides for i in range(len(side))]
        if not own or own not in runs:
            raise _bad(f"bundle {bundle.name!r} is not made of adjacent inputs or outputs")


def _verify_growth(graph: Graph) -> None:
    growth = graph.growth
    known = {s.name: s for s in graph.symbols if s.source == "state"}
    if growth is None:
        if known:
            raise _bad(f"symbol {min(known)!r} has source 'state', but no state grows")
        return
    inputs = {v.name: v for v in graph.inputs}
    if growth.rows not in known or len(known) > 1 or known[growth.rows].high is None:
        raise _bad(f"{growth.rows!r} is not the one symbol with source 'state' and an upper bound")
    _check_mentions(
        graph.symbol_map, _bound_by_inputs(graph) - {growth.rows}, [growth.added], "grow"
    )
    for name, axis in growth.axes:
        if name not in dict(graph.state) or not 0 <= axis < inputs[name].tensor.rank:
            raise _bad(f"{name!r} is not a state with an axis {axis}", "grow")
        size = arith.as_int(inputs[name].shape[axis])
        if size is None or size < known[growth.rows].high:  # type: ignore[operator]
            what = f"axis {axis} of {name!r} is {inputs[name].shape[axis]}"
            raise _bad(f"{what}, which does not hold all values of {growth.rows!r}", "grow")


def _bad(what: str, where: str = "") -> IngotError:
    return IngotError("bad-graph", what, where=where)


# --- queries that passes share ------------------------------------------------------------------


def describe(node: Node) -> str:
    """A node's name in error messages: its origin, operator and outputs."""
    made = ", ".join(v.name for v in node.outputs)
    return f"{node.origin + ': ' if node.origin else ''}{node.op} -> {made}"


def bound_symbols(node: Node) -> tuple[str, ...]:
    """The symbols that this node binds when it has run."""
    return tuple(node.attr("symbols") or ())


def without_symbols(node: Node) -> tuple[tuple[str, Any], ...]:
    return tuple((k, v) for k, v in node.attrs if k != "symbols")


def type_dims(type: Type) -> Iterator[arith.Expr]:
    yield from type.shape


def attr_dims(attrs: Any) -> Iterator[arith.Expr]:
    """Every integer expression in an attribute (or tuple of them); sub-graphs are not entered."""
    if isinstance(attrs, arith.Expr):
        yield attrs
    elif isinstance(attrs, tuple):
        for value in attrs:
            yield from attr_dims(value)


def types_agree(a: Type, b: Type, symbols: Mapping[str, Symbol]) -> bool:
    """Same element type and, for every value of the symbols, same shape. Layout, device and
    quantisation are not inferred by operators and not compared."""
    if a.dtype is not b.dtype or a.rank != b.rank:
        return False
    return all(sizes_agree(x, y, symbols) for x, y in zip(a.shape, b.shape))


def sizes_agree(a: arith.Expr, b: arith.Expr, symbols: Mapping[str, Symbol]) -> bool:
    """Whether two sizes are equal for a sample of the symbols' values."""
    if a == b:
        return True
    names = sorted(arith.free_vars(a) | arith.free_vars(b))
    return bool(names) and all(_value(a, env) == _value(b, env) for env in _trials(names, symbols))


def _trials(names: list[str], symbols: Mapping[str, Symbol]) -> Iterator[dict[str, int]]:
    """Twelve different assignments within each symbol's range and divisor."""
    for trial in range(12):
        env = {}
        for place, name in enumerate(names):
            symbol = symbols.get(name, Symbol(name))
            step = symbol.divisor
            first = -(-symbol.low // step)
            last = first + 10_000 if symbol.high is None else symbol.high // step
            wanted = (trial * (2 * place + 1) + trial * trial * (place + 1)) * 7
            env[name] = (first + wanted % max(1, last - first + 1)) * step
        yield env


def _value(size: arith.Expr, env: Mapping[str, int]) -> int | None:
    try:
        return arith.evaluate(size, env)
    except ZeroDivisionError:
        return None
